"""Tables of many runs: means and deviations, what is missing, and published numbers with their marks."""

import json

import pytest

from protometry.evaluation.results.metrics_json import write_metrics
from protometry.evaluation.results.runs import collect
from protometry.evaluation.tables.groups import Average, average, groups_of
from protometry.evaluation.tables.run_tables import text_of
from protometry.scripts.evaluate import table
from tests.evaluation.explained.evaluated import CUT_SHORT, TRAINING, content, entry, parsed, rewrite, write_run

F1, NPR, VLC = "general/f1", "compactness/npr", "completeness/vlc"
RUN, MEAN, PAPER = "value [95 %]", "mean ± std over folds", "quanproto"
RESNET = {"backbone": "resnet50", "pruned": False}


@pytest.fixture
def make(tmp_path):
    """Writes runs and gives their table."""

    def made(*runs, paper=None, across=(), **common):
        folders = [
            write_run(tmp_path / f"run{i}", metrics, **({"fold": i} | common | changes))
            for i, (metrics, changes) in enumerate(runs)
        ]
        return text_of(collect(folders), "markdown", paper, across)

    return made


# -- our numbers ------------------------------------------------------------------------------------------------------
def test_mean_and_sample_deviation(make):
    # 60, 70, 80 %: mean 70, squared deviations 100 + 0 + 100 over 2 -> 10; 1, 2, 6: mean 3, (4 + 1 + 9) / 2 = 7
    runs = [({F1: f1, NPR: entry(npr, unit="ratio", higher=False)}, {}) for f1, npr in ((0.6, 1), (0.7, 2), (0.8, 6))]
    text = make(*runs)
    assert text.startswith("### ProtoPNet on cub200, test split, 3 runs\n")
    assert "variant paper, explainer prp, crop box" in text
    assert "folds 0 1 2, seeds of perturbations 0" in text
    rows = parsed(text)
    assert rows[F1] == {"metric": "general/f1 ↑", "unit": "%", MEAN: "70 ± 10", "n": "3"}
    assert rows[NPR] == {"metric": "compactness/npr ↓", "unit": "ratio", MEAN: "3.0 ± 2.6", "n": "3"}


def test_one_run_shows_its_own_interval(make):
    text = make(({F1: entry(0.5, 0.4, 0.625), NPR: entry(2.0, unit="ratio")}, {}))
    assert ", 1 run\n" in text
    rows = parsed(text)
    assert rows[F1][RUN] == "50.00 [40.00, 62.50]"
    assert rows[NPR][RUN] == "2.00"  # a number of the model has no interval


def test_models_of_released_weights_are_averaged_with_their_like_only(tmp_path):
    """Whatever their files are."""
    theirs = [{"trained_with": "released code of Chen et al. 2019", "state_dict": {"file": name}} for name in "ab"]
    runs = [
        write_run(tmp_path / str(index), {F1: 0.5}, fold=index, protocol=protocol)
        for index, protocol in enumerate([{}, *theirs])
    ]
    assert [len(group.results) for group in groups_of(collect(runs))] == [1, 2]


def test_folds_and_seeds_are_distinguished(make):
    # fold 0: 60, 70, 80 %, mean 70; fold 1: 90. Mean 80; between folds (10² + 10²) / 1, between seeds (10² + 10²) / 2
    runs = [(0, 0, 0.6), (0, 1, 0.7), (0, 2, 0.8), (1, 0, 0.9)]
    made = [
        ({F1: f1, NPR: f1 if fold else None}, {"fold": fold, "protocol": {"train_seed": s}}) for fold, s, f1 in runs
    ]
    text = make(*made)
    name = "mean ± std over folds ± over seeds"
    assert (parsed(text)[F1][name], parsed(text)[F1]["n"]) == ("80 ± 14 ± 10", "2 folds, 4 runs")
    assert (parsed(text)[NPR][name], parsed(text)[NPR]["n"]) == ("90.00", "1 fold, 1/4 runs")
    assert "folds 0 1, training seeds 0 1 2, seeds of perturbations 0" in text
    assert "- mean over 2 folds of the mean over 1 to 3 seeds ± standard deviation" in text
    assert "train_seed" not in text
    assert parsed(make(*made[:3], seed=7))[F1]["mean ± std over seeds"] == "70 ± 10"
    assert parsed(make(made[2], made[3]))[F1]["mean ± std over folds"] == "85.0 ± 7.1"
    assert "- the same fold and training seed, but counted as different runs: run0, run1" in make(made[0], made[0])


def test_equal_runs_have_no_spread():
    assert average([[0.1] * 3, [0.1]]) == Average(0.1, 0.0, 0.0, 2, 4)


def test_a_table_says_what_it_read(make, tmp_path):
    runs = [({F1: 0.1}, {"model": m, "fold": None}) for m in ("BagNet", "BagNet", "PIPNet")]
    text = make(*runs)
    assert f"- run0, run1: read from {tmp_path}/*/evaluation, best.ckpt at step 4\n" in text
    assert f"- run2: read from {tmp_path}/run2/evaluation, best.ckpt at step 4" in text
    few = tmp_path / "run2" / "evaluation" / "few"
    write_metrics(content({F1: 0.3}, limit=8, **runs[2][1]), few)
    assert (
        "- run2: not read, to be named by their own folders: evaluation/few, best.ckpt at step 4, limit 8"
        in text_of(collect([tmp_path / "run2"]), "markdown")
    )
    both = text_of(collect([few.parent, few]), "markdown")
    assert list(parsed(both)[F1])[2:] == ["PIPNet, no limit (evaluation)", "PIPNet, limit 8 (evaluation/few)"]


def test_what_stands_beside_a_metric_follows_it(make):
    def cem(value, lift):
        baselines = {"prevalence": 0.6, "lift_over_prevalence": lift, "lift_over_prevalence_low": lift - 0.1}
        return entry(value) | baselines | {"lift_over_prevalence_high": lift + 0.1}

    accuracy, cgim = entry(0.9) | {"majority": 0.7}, entry(0.4, unit="cosine") | {"centered": None}
    alone = make(({"concepts/cem@5": cem(0.8, 0.2), "concepts/accuracy": accuracy, "concepts/cgim1": cgim}, {}))
    lines = [line for line in alone.splitlines() if line.startswith("| concepts")]
    names = ("cem@5", "cem@5, over prevalence", "accuracy", "accuracy, majority", "cgim1", "cgim1, centered")
    assert [line.split(" | ")[0].strip("| ") for line in lines] == [f"concepts/{name} ↑" for name in names]
    assert "20.00 [10.00, 30.00]" in lines[1]
    assert "70.00" in lines[3]
    assert "undefined" in lines[5]
    both = make(({"concepts/cem@5": cem(0.8, 0.2)}, {}), ({"concepts/cem@5": cem(0.9, 0.4)}, {}))
    assert "30 ± 14" in both


def test_undefined_values_are_no_numbers(make):
    nothing = entry(None) | {"reason": "no pair"}
    text = make(({F1: 0.5, NPR: nothing}, {}), ({F1: None, NPR: None}, {}), ({F1: 0.7, NPR: None}, {}))
    rows = parsed(text)
    assert (rows[F1][MEAN], rows[F1]["n"]) == ("60 ± 14", "2/3")
    assert (rows[NPR][MEAN], rows[NPR]["n"]) == ("undefined", "0/3")
    alone = make(({F1: entry(0.5, 0.4, 0.6)}, {}), ({F1: None}, {}))
    assert parsed(alone)[F1][MEAN] == "50.00 [40.00, 60.00]"
    assert "- undefined in 1 of 3 results: general/f1\n" in text
    assert "- undefined in 3 of 3 results, because no pair: compactness/npr" in text
    lacking = make(({F1: entry(0.5) | {"averaged_over": "class", "without_images": 2}}, {}), ({F1: 0.5}, {}))
    assert "- 2 classes have no image: general/f1" in lacking


def test_what_does_not_apply_says_why(make):
    skipped = {"skipped": {NPR: "weight: no weight matrix", VLC: "weight: no weight matrix"}}
    text = make(({F1: 0.5}, skipped), ({F1: 0.7}, skipped))
    assert (parsed(text)[NPR][MEAN], parsed(text)[NPR]["n"]) == ("n/a", "0/2")
    assert f"- n/a, because weight: no weight matrix: {NPR}, {VLC}" in text


def test_runs_with_other_suites_print_what_they_have(make):
    text = make(({F1: 0.5, NPR: entry(2.0, 1.0, 3.0, unit="ratio")}, {}), ({F1: 0.7}, {"skipped": {NPR: "no head"}}))
    assert (parsed(text)[F1][MEAN], parsed(text)[F1]["n"]) == ("60 ± 14", "2")
    assert (parsed(text)[NPR][MEAN], parsed(text)[NPR]["n"]) == ("2.00 [1.00, 3.00]", "1/2")
    assert "- n/a in some runs, because no head: compactness/npr" in text


def test_groups_do_not_mix(make):
    text = make(({F1: 0.1}, {}), ({F1: 0.2}, {"explainer": "upsample"}), ({F1: 0.3}, {}), ({F1: 0.4}, {"fold": None}))
    row = parsed(text)[F1]
    assert list(row.values()) == ["general/f1 ↑", "%", "20 ± 14", "20.00", "40.00"]
    assert list(row)[2:] == [
        "ProtoPNet, folds, explainer prp (run0, run2)",
        "ProtoPNet, folds, explainer upsample (run1)",
        "ProtoPNet, not folds, explainer prp (run3)",
    ]
    assert [part.split("\n")[0] for part in text.split("### ")[1:]] == [
        "ProtoPNet, folds, explainer prp (run0, run2) on cub200, test split, 2 runs",
        "ProtoPNet, folds, explainer upsample (run1) on cub200, test split, 1 run",
        "ProtoPNet, not folds, explainer prp (run3) on cub200, test split, 1 run",
    ]


def test_names_have_only_what_sets_runs_apart(tmp_path):
    """Of conditions that go together, such as data set and crop, only the first; none in a table of one data set."""
    places = {"cub200": "box", "nico": "none"}
    runs = [
        write_run(tmp_path / f"{data}{pruned}", {F1: 0.5}, dataset=data, protocol={"crop": crop, "pruned": pruned})
        for data, crop in places.items()
        for pruned in (True, False)
    ]
    words = ["pruned", "not pruned"]
    assert [group.words for group in groups_of(collect(runs))] == [
        [f"dataset {data}", word] for data in places for word in words
    ]
    assert [group.words for group in groups_of(collect(runs), by_dataset=True)] == [[word] for word in words * 2]
    tasks = [  # what is in the data comes before what an evaluation says of itself
        write_run(tmp_path / task, {F1: 0.5}, protocol={"interface": interface, "data": {"task": task}})
        for task, interface in (("classes", "ssm"), ("attributes", None))
    ]
    assert [group.words for group in groups_of(collect(tasks))] == [["task classes"], ["task attributes"]]


def test_models_stand_side_by_side(make):
    tree = {"model": "ProtoTree", "skipped": {NPR: "weight: no weight matrix"}}
    ratio = entry(2.0, unit="ratio", higher=False)
    text = make(({F1: 0.5, NPR: ratio}, {}), ({F1: 0.7, NPR: None}, {}), ({F1: 0.8}, tree), ({F1: 0.9}, tree))
    rows = parsed(text)
    assert rows[F1] == {
        "metric": "general/f1 ↑",
        "unit": "%",
        "ProtoPNet (run0, run1)": "60 ± 14",
        "ProtoTree (run2, run3)": "85.0 ± 7.1",
    }
    assert rows[NPR] == {
        "metric": "compactness/npr ↓",
        "unit": "ratio",
        "ProtoPNet (run0, run1)": "2.00 (1/2)",
        "ProtoTree (run2, run3)": "n/a",
    }
    first, second = text.split("### ")[1:]
    assert "undefined in 1 of 2 results: compactness/npr" in first
    assert "n/a, because weight: no weight matrix: compactness/npr" in second


def test_runs_trained_otherwise_are_not_averaged(make):
    other = {"model": {"prototypes_per_class": 3, "backbone": None}, "batch_size": 32}
    runs = ({F1: 0.1}, {}), ({F1: 0.2}, {}), ({F1: 0.4}, {"training": other})
    text = make(*runs)
    assert list(parsed(text)[F1].items())[2:] == [
        ("ProtoPNet, prototypes per class 10 (run0, run1)", "15.0 ± 7.1"),
        ("ProtoPNet, prototypes per class 3 (run2)", "40.00"),
    ]
    assert "differ in:\n\n- batch_size: 64 vs 32\n- model.prototypes_per_class: 10 vs 3\n\n### " in text
    assert "batch_size: 64 vs 32\n" in make(*runs, paper="quanproto")
    pooled = make(*runs, across=["batch_size", "model"])
    assert parsed(pooled)[F1][MEAN] == "23 ± 15"
    assert "- not the same in all runs: model.prototypes_per_class: 10 vs 3\n" in pooled
    with pytest.raises(ValueError, match=r"conditions of these runs, but got 'batchsize'\. Did you mean 'batch_size'"):
        make(*runs, across=["batchsize"])


def test_three_columns_say_which_value_is_whose(make):
    text = make(({F1: 0.1}, {"model": "BagNet"}), ({F1: 0.2}, {}), ({F1: 0.4}, {"training": {"batch_size": 32}}))
    assert "- batch_size: 64 (1, 2) vs 32 (3)\n" in text
    fewer = {"training": {"model": {"prototypes_per_class": 3}}}
    text = make(({F1: 0.1}, {"model": "BagNet"}), ({F1: 0.2}, {}), ({F1: 0.4}, fewer))
    assert "- model.prototypes_per_class: 10 (2) vs 3 (3)\n" in text


def test_how_long_early_stopping_let_a_run_last_is_averaged_over(make):
    text = make(({F1: 0.1}, {}), ({F1: 0.3}, {"training": {"epochs": {"joint": 4, "last": 3}}}))
    assert parsed(text)[F1][MEAN] == "20 ± 14"
    assert "- not the same in all runs: epochs.joint: 6 vs 4" in text


def test_a_schedule_that_was_cut_short_is_marked_and_stands_alone(make):
    runs = ({F1: 0.1}, {}), ({F1: 0.3}, {"training": CUT_SHORT})
    mark = "cut short in joint, not projected"
    assert list(parsed(make(*runs))[F1])[2:] == ["ProtoPNet (run0)", f"ProtoPNet, {mark} (run1)"]
    text = make(*runs[1:], paper="quanproto", protocol=RESNET)
    assert f"### ProtoPNet on cub200, test split, 1 run, {mark}\n" in text
    assert f"† training={mark}, which the paper does not have" in text


def test_runs_of_which_less_is_known_stand_alone_and_say_so(make, tmp_path):
    def released(text):
        return json.dumps(json.loads(text) | {"training": {"model": TRAINING["model"]}})

    make(({F1: 0.1}, {}), ({F1: 0.2}, {}), ({F1: 0.4}, {}))
    for name in ("run1", "run2"):
        rewrite(tmp_path / name, released)
    text = text_of(collect([tmp_path / f"run{i}" for i in range(3)]), "markdown")
    assert list(parsed(text)[F1].values())[2:] == ["10.00", "30 ± 14"]
    assert list(parsed(text)[F1])[3] == "ProtoPNet, training not recorded (run1, run2)"
    assert "- not recorded, so runs may differ in them: arguments of the model, phases" in text


def test_what_was_found_may_differ_and_is_named(make):
    text = make(({F1: 0.1}, {}), ({F1: 0.2}, {"protocol": {"signed_maps": True}}))
    assert "- not the same in all runs: signed_maps: False vs True" in text


def test_one_run_evaluated_twice_is_not_two_runs(tmp_path):
    run = write_run(tmp_path / "run", {F1: 0.5, NPR: 1.0})
    again = run / "evaluation" / "seed1"
    again.mkdir()
    text = json.loads((run / "evaluation" / "metrics.json").read_text()) | {"seed": 1}
    (again / "metrics.json").write_text(json.dumps(text))
    with pytest.raises(ValueError, match=r"Expected every run to give general/f1 once .*run/evaluation/metrics.json"):
        text_of(collect([run / "evaluation", again]), "markdown")
    text["metrics"] = {VLC: text["metrics"][F1]}  # another part of the suite
    (again / "metrics.json").write_text(json.dumps(text))
    rows = parsed(text_of(collect([run / "evaluation", again]), "markdown"))
    assert {key: row["n"] for key, row in rows.items()} == {F1: "1", NPR: "1", VLC: "1"}


# -- next to published numbers ----------------------------------------------------------------------------------------
def test_the_same_variant_shares_a_column_and_another_has_its_own(make):
    run = ({VLC: 0.4, "contrastivity/plc": entry(2.0, unit="cells")}, {})
    text, other = (make(run, paper="quanproto", protocol=RESNET | {"variant": v}) for v in ("quanproto", "paper"))
    same, apart = parsed(text), parsed(other)
    assert same[VLC][PAPER] == apart[VLC]["quanproto †"] == "42.8 ± 1.2 (Q2 Q3 Q9 Q10)"
    assert apart[VLC][PAPER] == ""
    assert same["contrastivity/plc"][PAPER] == apart["contrastivity/plc"][PAPER] == "1.95 ± 0.28 (Q9 Q10)"
    assert "- quanproto: ProtoPNet[backbone=resnet50,init=imagenet,input=crop], ± over 4" in text
    assert "not checked" not in text
    assert "- Q2: VLC" in text
    assert "- Q4" not in text  # entropy is not in the table
    assert "- † other variant: variant=quanproto (these runs: paper): completeness/vlc" in other


@pytest.mark.parametrize(("protocol", "reason"), [
    ({"crop": "none"}, "† input=crop (these runs: full)"), ({"weights": None}, "† init=imagenet (these runs: none)"),
    ({"backbone": "vgg19"}, "† backbone=resnet50 (these runs: vgg19)"),
    ({"pruned": True}, "† pruned=no (these runs: yes)"),
    ({"last_layer": "solved"}, "† last_layer=trained (these runs: solved)"),
    ({"data": {"classes": 10}}, "† classes=10, which the paper does not have"),
])  # fmt: skip
def test_a_known_difference_is_marked(make, protocol, reason):
    text = make(({NPR: entry(1.0, unit="ratio")}, {}), paper="quanproto", protocol=RESNET | protocol)
    assert parsed(text)[NPR]["quanproto †"] == "0.25 ± 0.19 (Q10)"
    assert f"- {reason}: compactness/npr" in text
    pruned = {"quanproto pruned=yes": "0.19 ± 0.13 (Q10)"}.items()
    assert (pruned <= parsed(text)[NPR].items()) == ("pruned" in protocol)


def test_what_the_runs_do_not_say_is_named(make):
    text = make(({NPR: 1.0}, {}), paper="quanproto", protocol={"weights": "/data/mine.pth"})
    assert "- not checked, because these runs do not say: backbone, init, pruned" in text


def test_weighted_accuracy_is_balanced_accuracy(make):
    text = make(({"general/accuracy": 0.7, "general/balanced_accuracy": 0.7}, {}), paper="quanproto", protocol=RESNET)
    rows = parsed(text)
    assert (rows["general/balanced_accuracy"][PAPER], rows["general/accuracy"][PAPER]) == ("70.2 ± 1.3 (Q1 Q9 Q10)", "")
    assert rows["general/accuracy"]["quanproto †"] == "70.2 ± 1.3 (Q1 Q9 Q10)"


def test_unverified_numbers_say_so(make):
    text = make(({"general/accuracy": 0.7}, {}), paper="protopnet", protocol=RESNET | {"backbone": "vgg19"})
    assert parsed(text)["general/accuracy"]["protopnet backbone=vgg19"] == "78.00 ± 0.20 (M1 M3 unverified)"
    assert "- unverified: quoted second-hand" in text
    assert "- secondary: quoted by a user: general/accuracy" in text


def test_numbers_of_single_concepts_are_distinguished(make):
    key = "concepts/cgim1_concept"
    text = make(({key: entry(0.3, unit="cosine")}, {"model": "PosthocCBM"}), paper="concept_metrics")
    row = parsed(text)[key]
    (plain,) = [text for name, text in row.items() if text.startswith("0.286")]
    assert plain == "0.286 (C6 unverified)"
    assert "-0.63 (concept=51" in row["concept_metrics †"]
    assert "† concept=51 (these runs: all)" in text


def test_a_number_in_two_tables_is_printed_once(make):
    key = "funnybirds/sd"
    text = make(({key: 0.5}, {"dataset": "funnybirds", "explainer": None}), paper="funnybirds_revisited")
    cells = [cell for name, cell in parsed(text)[key].items() if "code=fixed" in name and "bb" in name]
    assert cells == ["75.00 (F2 F4)"]


@pytest.mark.parametrize(("facts", "value", "other"), [
    ({"interface": "bb_reference"}, "75.00 (F2 F4)", "before_fix (these runs: fixed)"),
    ({"interface": "bb_corrected"}, "75.00 (F2 F4)", "before_fix (these runs: fixed)"),
    ({"interface": "bb_reference", "foreign_weights": True}, "24.00 (F1 F2 F4)", "fixed (these runs: before_fix)"),
])  # fmt: skip
def test_published_numbers_with_and_without_the_overwritten_class(make, facts, value, other):
    runs = ({"funnybirds/sd": 0.5}, {"dataset": "funnybirds"})
    text = make(runs, paper="funnybirds_revisited", protocol=RESNET | facts)
    row = parsed(text)["funnybirds/sd"]
    assert [cell for name, cell in row.items() if "bb" in name and "†" not in name] == [value]
    assert f"† code={other}" in text


def test_published_numbers_of_one_interface_stand_beside_ours(make):
    protocol = RESNET | {"interface": "bb_reference"}
    text = make(({"funnybirds/d": 0.5}, {"dataset": "funnybirds"}), paper="funnybirds", protocol=protocol)
    row = parsed(text)["funnybirds/d"]
    shown = {name: cell for name, cell in row.items() if name.startswith("funnybirds") and "†" not in name}
    assert list(shown.values()) == ["58.00 (F2 F4)"]
    assert "† explainer=ssm (these runs: bb)" in text
    assert "† code=before_fix (these runs: fixed)" in text


def test_what_a_paper_does_not_give(make):
    assert "- quanproto gives nothing for QPM on cub200" in make(({F1: 0.5}, {"model": "QPM"}), paper="quanproto")
    assert list(parsed(make(({F1: 0.5}, {"model": "QPM"}), paper="quanproto"))[F1]) == ["metric", "unit", RUN, "n"]


def test_nothing_applicable_beside_a_published_number(make):
    text = make(({F1: 0.5}, {"skipped": {VLC: "no explainer"}}), paper="quanproto", protocol=RESNET)
    assert parsed(text)[VLC][RUN] == "n/a"
    assert parsed(text)[VLC]["quanproto †"] == "0.428 ± 0.012 (Q2 Q3 Q9 Q10)"  # unit unknown: as it is in the file


def test_the_command_prints_and_writes_nothing(tmp_path, capsys):
    run = write_run(tmp_path / "run", {F1: 0.5})
    before = sorted(tmp_path.rglob("*"))
    table([str(run)], "quanproto")
    out = capsys.readouterr().out
    assert out.strip() == text_of(collect([run]), "markdown", "quanproto")
    assert all(len(line) == len(out.splitlines()[4]) for line in out.splitlines()[4:7])
    assert sorted(tmp_path.rglob("*")) == before


def test_models_made_of_concepts_meet_their_published_settings(make):
    arguments = {"preset": "plain", "svm_c": 10.0, "positives": 50, "backbone": None}
    text = make(
        ({"concepts/cem@5_score": 0.7, "general/accuracy": 0.5}, {"training": {"model": arguments}}),
        paper="concept_metrics",
        model="PosthocCBM",
        protocol={"backbone": "resnet18_cub", "crop": "none"},
    )
    assert "- † C=1 (these runs: 10): concepts/cem@5_score, general/accuracy" in text
    assert "- † n_pos=100 (these runs: 50)" in text
    rows = parsed(text)
    same = [cell for title, cell in rows["general/accuracy"].items() if "C=10,n_pos=50" in title.replace(" ", ",")]
    assert same == ["25.30 (C4)"]
    assert "C1: ranking concepts by prevalence alone does as well" in text


@pytest.mark.parametrize(("model", "arguments", "expected"), [
    ("Classifier", {}, "Dense[backbone=resnet50,input=crop]"),
    ("QPM", {"ternary": False, "num_features": 50}, "QPM[backbone=resnet50,input=crop]"),
    ("QPM", {"ternary": True}, "QSENN[backbone=resnet50,input=crop]"),
    ("QPM", {"ternary": False, "num_features": None}, "QPM[backbone=resnet50,input=crop]"),
])  # fmt: skip
def test_models_have_other_names_in_the_tables_of_qpm(make, model, arguments, expected):
    run = ({"general/accuracy": 0.8}, {"training": {"model": {"preset": "original", **arguments}}})
    text = make(run, paper="qpm", model=model, protocol=RESNET)
    assert f"- qpm: {expected}" in text
