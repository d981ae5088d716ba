"""Evaluations: the content of metrics.json, agreement with training, and that no result replaces another."""

import csv
import json
import re
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from protometry.callbacks import Interpretability
from protometry.callbacks.evaluation.unit_maps import unit_maps
from protometry.callbacks.forward.walk import walk
from protometry.datamodules import SketchBirdsDataset, load_datamodule
from protometry.datamodules.sample import sample_key
from protometry.evaluation.pictures.funnybirds.parts import read_birds
from protometry.evaluation.results.runs import collect
from protometry.evaluation.results.values_csv import PREDICTION
from protometry.evaluation.tables.run_tables import text_of
from protometry.evaluation.trained_model import TrainedModel
from protometry.explanations import BoxMaps, SummedMaps
from protometry.explanations.views import to_image
from protometry.lightning_modules import load_model
from protometry.metrics.suite import resolve
from tests.tiny_runs import fit, run_command, run_evaluation

GENERAL = ["--evaluation.suite=[general]"]


def strict(path):
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def without_timing(result):
    return {key: value for key, value in result.items() if key != "timing"}


def number_or_null(value):
    return value is None or (isinstance(value, float) and not isinstance(value, bool))


def assert_valid(result):
    assert list(result) == [
        *("schema", "checkpoint", "step", "split", "limit", "suite", "seed", "other_data", "model", "dataset", "fold"),
        *("explainer", "protocol", "training", "metrics", "skipped", "timing"),
    ]
    assert result["schema"] == 1
    assert result["protocol"].keys() - {"concept_source"} == {  # which only data with concepts of classes have
        *("backbone", "weights", "crop", "image_size", "augmentation", "selection", "data", "train_seed", "codecs"),
        "evaluation_code",
        *("asked_explainer", "explained_by", "object", "variant", "top_k", "noise", "view", "memory_budget"),
        *("interface", "units_per_image", "images_per_forward", "device", "signed_maps", "pruned", "last_layer"),
        "foreign",
    }
    assert {*result["metrics"], *result["skipped"]} == set(resolve(result["suite"]))
    for entry in result["metrics"].values():
        assert list(entry)[:6] == ["value", "ci95", "n", "skipped", "unit", "higher_is_better"]
        assert number_or_null(entry["value"])
        assert len(entry["ci95"]) == 2
        assert all(number_or_null(bound) for bound in entry["ci95"])
        assert type(entry["n"]) is int
        assert type(entry["skipped"]) is int
        assert isinstance(entry["unit"], str)
        assert entry["higher_is_better"] in (True, False, None)
    assert all(isinstance(reason, str) and reason for reason in result["skipped"].values())
    assert result["timing"].keys() == {"seconds", "images", "images_per_second", "ended"}


# -- the result -------------------------------------------------------------------------------------------------------
def test_metrics_json(evaluated_run):
    result = strict(evaluated_run / "evaluation" / "metrics.json")
    assert_valid(result)
    expected = {"checkpoint": "checkpoints/best.ckpt", "step": 16, "split": "test", "suite": ["quanproto"], "seed": 0}
    expected |= {"model": "NoisyProtoPNet", "dataset": "sketch_birds", "fold": None}
    assert {key: result[key] for key in expected} == expected
    assert result["protocol"]["selection"] == "best validation score"
    training = result["training"]
    assert training["model"]["prototypes_per_class"] == 2
    assert list(training["phases"]) == ["warm", "joint", "last", "joint2"]
    assert training["phases"]["joint"]["scheduler"]["name"] == "OneCycleLR"
    assert training["epochs"] == {"warm": 1, "joint": 2, "last": 1, "joint2": 1}
    assert (training["batch_size"], training["devices"], training["precision"]) == (12, 1, "32-true")
    assert (training["complete"], training["projected"]) == (True, True)  # of the best epoch, in phase "last"
    assert len(training["code"]["commit"] or "0" * 40) == 40
    assert result["timing"]["images"] == result["metrics"]["general/accuracy"]["n"] == 33
    assert result["metrics"]["compactness/global_size"] == {
        "value": 16.0,
        "ci95": [None, None],
        "n": 1,
        "skipped": 0,
        "unit": "count",
        "higher_is_better": False,
        "averaged_over": "none",
    }


def test_images_csv(evaluated_run):
    result = strict(evaluated_run / "evaluation" / "metrics.json")
    rows = table(evaluated_run / "evaluation" / "images.csv")
    names = [row.pop("sample_id") for row in rows]
    assert names == sorted(names)
    assert len(names) == len(set(names)) == 33
    checkpoint = evaluated_run / "checkpoints" / "best.ckpt"
    model, data = load_model(checkpoint, allow_classes=["tests"]).eval(), load_datamodule(checkpoint)
    samples = {sample["sample_id"]: sample for sample in data.dataset("test")}
    for name, row in zip(names, rows, strict=True):
        label, prediction, probability, correct = (row.pop(column) for column in PREDICTION)
        with torch.no_grad():
            chances = model(samples[name]["image"][None]).logits.softmax(dim=1)[0]
        assert label == data.class_names[int(samples[name]["label"])]
        assert prediction == data.class_names[int(chances.argmax())]
        assert float(probability) == pytest.approx(float(chances.max()), rel=1e-5)
        assert float(correct) == float(row["general/accuracy"]) == (label == prediction)
    assert {"general/accuracy", "completeness/vlc", "continuity/pac", "complexity/iord"} <= set(rows[0])
    assert {"general/f1", "contrastivity/entropy", "compactness/global_size"}.isdisjoint(rows[0])
    for key in rows[0]:
        defined = [float(row[key]) for row in rows if row[key]]
        assert len(defined) == result["metrics"][key]["n"]
        assert sum(defined) / len(defined) == pytest.approx(result["metrics"][key]["value"], abs=1e-12)


@pytest.fixture(scope="module")
def evaluated_again(evaluated_run, tmp_path_factory):
    """The same run after a second evaluation of its best checkpoint, with the scores, for reading only."""
    folder = shutil.copytree(evaluated_run, tmp_path_factory.mktemp("moved") / "again")
    run_evaluation(folder, "--scores", "csv", "--overwrite", "true", checkpoint="best")
    return folder


def test_training_and_a_later_evaluation_agree_exactly(evaluated_run, evaluated_again):
    first, second = (strict(folder / "evaluation" / "metrics.json") for folder in (evaluated_run, evaluated_again))
    assert without_timing(first) == without_timing(second)


def test_scores_of_all_units(evaluated_again):
    """In the order of images.csv."""
    checkpoint, folder = evaluated_again / "checkpoints" / "best.ckpt", evaluated_again / "evaluation"
    model, data = load_model(checkpoint, allow_classes=["tests"]).eval(), load_datamodule(checkpoint)
    samples = {sample["sample_id"]: sample for sample in data.dataset("test")}
    rows, images = table(folder / "scores.csv"), table(folder / "images.csv")
    named = [(row.pop("sample_id"), row.pop("label")) for row in rows]
    assert named == [(row["sample_id"], row["label"]) for row in images]
    assert list(rows[0]) == [f"prototype {unit}" for unit in model.units().active.nonzero().flatten().tolist()]
    with torch.no_grad():
        scores = model(torch.stack([samples[name]["image"] for name, _ in named])).scores[:, model.units().active]
    result = torch.tensor([[float(value) for value in row.values()] for row in rows])
    torch.testing.assert_close(result, scores, rtol=1e-4, atol=1e-5)


def test_maps_and_boxes_of_all_units(evaluated_copy):
    """Bit for bit what the model gives, in the order of images.csv; a failed evaluation leaves no part of them."""
    checkpoint, folder = evaluated_copy / "checkpoints" / "best.ckpt", evaluated_copy / "evaluation"
    model, data = load_model(checkpoint, allow_classes=["tests"]).eval(), load_datamodule(checkpoint)
    run_evaluation(evaluated_copy, "--maps", "true", "--overwrite", "true", "--suite", "general", checkpoint="best")
    (index,) = folder.glob("**/maps.json")
    said, folder = strict(index), index.parent
    assert said["sample_ids"] == [row["sample_id"] for row in table(folder / "images.csv")]
    assert said["units"] == model.units().active.nonzero().flatten().tolist()
    maps, boxes = (np.load(folder / said[name]["file"], mmap_mode="r") for name in ("maps", "boxes"))
    samples = {sample["sample_id"]: sample for sample in data.dataset("test")}
    (output,) = [outputs for _, outputs in walk(model, [_batch(samples, said["sample_ids"])], (32, 32), keep_maps=True)]
    own = output.all_maps[:, model.units().active]
    np.testing.assert_array_equal(maps, own.numpy())
    for row, unit in ((0, 0), (3, 5), (-1, -1)):
        place = divmod(int(maps[row, unit].argmax()), maps.shape[3])
        assert tuple(boxes[row, unit]) == model.geometry.cell_box(*place)
    writing = unit_maps(Interpretability(), folder)
    writing.__enter__().start([1], model.units().active, model.geometry)
    assert list(folder.glob("*.part"))
    writing.__exit__(None, None, None)
    assert not list(folder.glob("*.part"))


def _batch(samples, ids):
    keys = torch.tensor([sample_key(name) for name in ids])
    return {"image": torch.stack([samples[name]["image"] for name in ids]), "sample_key": keys, "sample_id": ids}


def test_the_loggers_get_the_same_numbers(evaluated_run):
    result = strict(evaluated_run / "evaluation" / "metrics.json")
    with (evaluated_run / "metrics.csv").open(newline="") as file:
        (row,) = [row for row in csv.DictReader(file) if row["test/general/accuracy"]]
    assert {key: float(row[f"test/{key}"]) for key in result["metrics"]} == {
        key: entry["value"] for key, entry in result["metrics"].items()
    }


def assert_pictures_agree(run, names):
    """Pictures are there, and what they tell of an image is what the evaluation measured."""
    checkpoint = run / "checkpoints" / "best.ckpt"
    model, data = load_model(checkpoint, allow_classes=["tests"]).eval(), load_datamodule(checkpoint)
    images, explainers = data.dataset("test"), {"ssm": SummedMaps(), "bb": BoxMaps()}
    birds = read_birds(model, images, data.tables.label_map_codes, explainers, len(images))
    for name in names:
        assert {path.stem for path in name.parent.glob("*.png")} == {"part_importance", "spider"}
        measured = {row["sample_id"]: row for row in table(name.parent / "images.csv")}
        interface = strict(name)["protocol"]["interface"]
        for bird in (bird for bird in birds if bird.name in measured):
            explained, row = bird.explained[interface], measured[bird.name]
            if row["funnybirds/sd"]:
                assert explained.single_deletion == pytest.approx(float(row["funnybirds/sd"]))
            assert (bird.label == bird.prediction) == bool(float(row["funnybirds/accuracy"]))


def test_one_key_of_the_protocol_leaves_its_pictures(evaluated_copy):
    """The spider needs all of them."""
    shutil.rmtree(evaluated_copy / "evaluation")
    run_evaluation(evaluated_copy, "--suite", "funnybirds/sd", "--limit", "4", checkpoint="best")
    assert list(strict(evaluated_copy / "evaluation" / "metrics.json")["metrics"]) == ["funnybirds/sd"]
    pictures = {path.stem for path in (evaluated_copy / "evaluation").glob("*.png")}
    assert pictures == {"part_importance"}


def test_two_interfaces_are_two_evaluations_that_compare_asks_about(evaluated_copy, capsys):
    for flags in ([], ["--interface", "bb"]):
        run_evaluation(evaluated_copy, "--suite", "funnybirds", "--limit", "8", *flags, checkpoint="best")
    names = sorted((evaluated_copy / "evaluation").glob("*interface=*/metrics.json"))
    results = {result["protocol"]["interface"]: result for result in map(strict, names)}
    assert set(results) == {"ssm", "bb"}
    for result in results.values():
        sums = ["funnybirds/totals_not_positive"] if result["protocol"]["interface"] == "bb" else []
        assert list(result["skipped"]) == sums  # boxes are not summed
        assert {*result["metrics"], *sums} == set(resolve(["funnybirds"]))
        assert set(result["metrics"]["funnybirds/completeness"]) >= {"threshold", "averaged_over"}
        assert result["explainer"] is None
    assert_pictures_agree(evaluated_copy, names)
    with pytest.raises(FileExistsError, match="holds this evaluation already"):
        run_evaluation(evaluated_copy, "--suite", "funnybirds", "--limit", "8", "--interface", "ssm", checkpoint="best")
    pair = [str(name.parent) for name in names]
    with pytest.raises(ValueError, match=r"agree in interface, but got .*pass `--across\+=interface`"):
        run_command("compare", *pair)
    capsys.readouterr()
    run_command("compare", *pair, "--across+=interface", "--draws", "10")
    printed = capsys.readouterr().out
    assert "**interface: bb vs ssm**" in printed
    assert {f"funnybirds/{name}" for name in ("csdc", "pc", "dc", "d", "sd")} <= set(
        re.findall(r"funnybirds/\w+", printed)
    )
    table = text_of(collect(pair), "markdown")
    assert "interface bb" in table.splitlines()[0]


def test_what_does_not_apply_is_listed_with_the_reason(tmp_path, cub_tree, capsys):
    folder, root = tmp_path / "run", cub_tree()
    args = [f"--data.root={root}", "--data.image_size=32", "--trainer.max_epochs=1"]
    fit(folder, *args, model="Classifier", data="Cub200")
    root.rename(tmp_path / "elsewhere")
    with pytest.warns(UserWarning, match="The schedule was cut short in phase train, after 1 of its 4 epochs"):
        run_evaluation(folder, "--data_root", str(tmp_path / "elsewhere"))
    result = strict(folder / "evaluation" / "metrics.json")
    assert_valid(result)
    assert result["skipped"]["general/top3_accuracy"] == "num_classes: top-3 accuracy needs more than 3 classes"
    printed = capsys.readouterr().out
    actual = ["--ckpt_path", str(folder / "checkpoints" / "last.ckpt"), "--data_root", str(tmp_path / "elsewhere")]
    run_command("metrics", *actual, "--suite", "quanproto")
    *apply, last = capsys.readouterr().out.splitlines()
    assert {line.split("/")[0] for line in apply} >= {"general", "compactness"}
    assert last.startswith("not applicable, because ")
    assert last in printed
    assert (result["model"], result["dataset"], result["fold"]) == ("Classifier", "cub200", 0)
    assert result["protocol"]["concept_source"]
    assert (result["protocol"]["crop"], result["protocol"]["augmentation"]) == ("none", "geometric_photometric")


def test_the_split_of_the_run_is_kept(tmp_path, cub_tree):
    folder = tmp_path / "run"
    args = [f"--data.root={cub_tree()}", "--data.image_size=32", "--trainer.max_epochs=1", "--data.fold=null"]
    fit(folder, *args, model="Classifier", data="Cub200")
    record = json.loads((folder / "split.json").read_text())
    tested = len(record["test"])
    record["val"][0].append(record["test"].pop())
    (folder / "split.json").write_text(json.dumps(record))
    run_evaluation(folder)
    assert strict(folder / "evaluation" / "metrics.json")["timing"]["images"] == tested - 1


def test_a_data_module_of_the_user(tmp_path):
    folder = tmp_path / "run"
    kinds = {"model": "ProtoPNet", "data": "tests.tiny_runs.MyBirds"}
    fit(folder, *GENERAL, "--trainer.max_epochs=1", "--test_after_fit=true", **kinds)
    result = strict(folder / "evaluation" / "metrics.json")
    assert (result["model"], result["dataset"]) == ("ProtoPNet", "MyBirds")


# -- other data -------------------------------------------------------------------------------------------------------
@pytest.fixture
def other_birds(tmp_path):
    """A folder with birds 0 to 2 and herons, five of each, and the config that reads it."""
    birds = SketchBirdsDataset("tiny", "test")
    for index in range(40):
        name = {0: "Bird_0", 1: "bird 1", 2: "002.bird-2", 5: "heron"}.get(int(birds.labels[index]))
        if name:
            (tmp_path / "birds" / name).mkdir(parents=True, exist_ok=True)
            Image.fromarray(birds.image(index)).save(tmp_path / "birds" / name / f"{index}.png")
    config = tmp_path / "other.yaml"
    config.write_text(
        f"data:\n  class_path: protometry.datamodules.ImageFolder\n  init_args: {{root: {tmp_path / 'birds'}}}\n"
    )
    return config


def test_other_data_than_the_run_s(evaluated_copy, other_birds):
    own = (evaluated_copy / "evaluation" / "metrics.json").read_bytes()
    args = ["--suite", "general,continuity/plc", "--data", str(other_birds)]
    run_evaluation(evaluated_copy, *args)
    run_evaluation(evaluated_copy, *args, "--limit", "4")
    with pytest.raises(FileExistsError, match="overwrite"):
        run_evaluation(evaluated_copy, *args)
    assert (evaluated_copy / "evaluation" / "metrics.json").read_bytes() == own
    assert collect([evaluated_copy])[0].other_data is None  # a result on other data is none of a later step
    files = evaluated_copy.glob("evaluation/*data=other*/metrics.json")  # whose names say 8 digits of the settings
    few, whole = sorted(files, key=lambda path: strict(path)["limit"] is None)
    result = strict(whole)
    assert_valid(result)
    data = result["other_data"]
    assert {name: data[name] for name in ("config", "classes", "matched", "left_out", "images", "images_left_out")} == {
        "config": "other.yaml", "classes": 8, "matched": 3, "left_out": ["heron"], "images": 15, "images_left_out": 5,
    }  # fmt: skip
    assert (result["dataset"], result["metrics"]["general/accuracy"]["n"]) == ("birds", 15)
    assert result["protocol"]["train_seed"] == 0
    assert strict(few)["metrics"]["general/accuracy"]["n"] == 4
    assert "other data than trained on (other.yaml, 3 of 8 classes)" in text_of(collect([whole]), "markdown")


WRONG = [
    ("data: [", "to be a yaml file, but while parsing"),
    ("model: 3", "to hold `data` with a `class_path` as in configs/data, but got None"),
    (
        "data: {class_path: protometry.datamodules.Nope}",
        "to name a data module, but got 'protometry.datamodules.Nope'",
    ),
    (
        "data: {class_path: protometry.datamodules.Cub200}",
        "other.yaml to set `data.init_args.root`, .*pass `--data_root DIR`",
    ),
    ("data: {class_path: nowhere.Nope}", "to be importable, but No module named 'nowhere'"),
    (
        "data: {class_path: protometry.datamodules.SketchBirds, init_args: {prest: tiny}}",
        "arguments of SketchBirds, but .*prest",
    ),
    (
        "data: {class_path: protometry.datamodules.SketchBirds, init_args: {image_size: 64}}",
        r"the model's, \[32, 32\], but got 64",
    ),
]


def test_a_wrong_config_of_other_data(evaluated_run, tmp_path):
    for text, message in WRONG:
        (tmp_path / "other.yaml").write_text(text)
        with pytest.raises(ValueError, match=message):
            run_evaluation(evaluated_run, "--data", str(tmp_path / "other.yaml"))


# -- what is made of results ------------------------------------------------------------------------------------------
def test_runs_next_to_published_numbers(evaluated_run, capsys):
    run_command("table", str(evaluated_run), "--published", "quanproto")
    printed = capsys.readouterr().out
    assert "### NoisyProtoPNet on sketch_birds, test split, 1 run" in printed
    assert "backbone sketch" in printed
    assert "| completeness/vlc ↓" in printed


def test_two_runs_image_by_image(evaluated_run, evaluated_again, capsys):
    with pytest.raises(ValueError, match="Expected two evaluations to compare, but got"):
        run_command("compare", str(evaluated_run), f"{evaluated_run}/evaluation")
    run_command("compare", str(evaluated_run), str(evaluated_again))
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| completeness/vac")]
    assert [cell.strip() for cell in row.split("|")[5:9]] == ["0.00", "undefined", "1", "1"]
    assert not (evaluated_run / "compared").exists()  # the class of the model is not trusted


def test_two_runs_side_by_side(evaluated_run, evaluated_again, evaluated_copy, tmp_path, capsys):
    shutil.copytree(evaluated_again, evaluated_copy, dirs_exist_ok=True)
    command = ["compare", str(evaluated_run), str(evaluated_copy), "--draws", "10", "--images", "1"]
    command += ["--output", str(tmp_path / "pages"), "--allow_classes", "tests"]
    run_command(*command, "--report", "false")
    assert not (tmp_path / "pages").exists()
    run_command(*command)
    assert f"pages: {tmp_path / 'pages' / 'index.html'}" in capsys.readouterr().out
    assert len(list((tmp_path / "pages").glob("image-*.html"))) == 1
    (evaluated_copy / "checkpoints" / "best.ckpt").unlink()
    run_command(*command, "--output", str(tmp_path / "none"))
    assert re.search(r"no pages: .* checkpoint file, but .*best\.ckpt", capsys.readouterr().out)
    assert not (tmp_path / "none").exists()
    for flags, message in (
        (["--data_root", str(tmp_path / "none")], "SketchBirds, .*got `root`, which it does not have"),  # asked for
        (["--images", "-1"], "`images` to be at least 0, but got -1"),
        (["--seed", "-1"], "`seed` to be at least 0, but got -1"),
        (["--draws", "0"], "`draws` to be at least 1, but got 0"),
    ):
        with pytest.raises((FileNotFoundError, ValueError), match=message):
            run_command(*command, *flags)


# -- no result replaces another ---------------------------------------------------------------------------------------
def test_every_request_has_a_folder_of_its_own(evaluated_copy, capsys):
    first = (evaluated_copy / "evaluation" / "metrics.json").read_bytes()
    run_evaluation(evaluated_copy)
    run_evaluation(evaluated_copy, "--split", "val", "--suite", "general")
    run_evaluation(evaluated_copy, "--limit", "5", "--explainer", "protometry.explanations.Random", "--top_k", "2")
    run_evaluation(evaluated_copy, "--suite", "general/f1,class_representation")
    run_evaluation(evaluated_copy, "--seed", "7", "--suite", "general")
    result = {path.parent.name: strict(path) for path in (evaluated_copy / "evaluation").rglob("metrics.json")}
    assert sorted(result) == [
        "evaluation",
        "last-step20-test-general-seed=7",
        "last-step20-test-general.f1-class_representation",
        "last-step20-test-quanproto",
        "last-step20-test-quanproto-limit=5-explainer=random-23ef1251",
        "last-step20-val-general",
    ]
    assert result["last-step20-val-general"]["metrics"]["general/accuracy"]["n"] == 16
    with pytest.raises(FileExistsError, match=r"explainer=random-23ef1251/metrics.json holds this evaluation already"):
        run_evaluation(evaluated_copy, "--limit", "5", "--explainer", "protometry.explanations.Random", "--top_k", "2")
    assert (evaluated_copy / "evaluation" / "metrics.json").read_bytes() == first
    files = evaluated_copy / "evaluation" / "last-step20-test-general.f1-class_representation"
    assert {path.name for path in files.iterdir()} == {
        *("metrics.json", "images.csv", "units.csv", "classes.csv", "class_features.png", "nearest_classes.png")
    }
    assert Image.open(files / "nearest_classes.png").width > 1000
    with (files / "units.csv").open(newline="") as file:
        units = [float(row["class_representation/contrastiveness"]) for row in csv.DictReader(file)]
    value = result[files.name]["metrics"]["class_representation/contrastiveness"]["value"]
    assert sum(units) / len(units) == pytest.approx(value)
    assert "now read this evaluation" not in capsys.readouterr().out  # the first is of the best checkpoint
    (evaluated_copy / "evaluation" / "metrics.json").unlink()
    run_evaluation(evaluated_copy, "--suite", "general")
    assert "read this evaluation (6 metrics); name" in capsys.readouterr().out


def test_inference_is_for_trees(evaluated_copy):
    with pytest.raises(ValueError, match=r"Expected argument `inference` for a ProtoTree only, but .*ProtoPNet"):
        run_evaluation(evaluated_copy, "--inference", "greedy")


@pytest.mark.parametrize("call", [
    lambda path: load_model(path, allow_classes=["tests"]),
    load_datamodule,
    lambda path: TrainedModel(path).checkpoint,
    lambda path: collect([path.removesuffix("/checkpoints/last.ckpt")]),
])  # fmt: skip
def test_a_run_below_the_home_folder(call, evaluated_run, monkeypatch):
    monkeypatch.setenv("HOME", str(evaluated_run.parent))
    assert call(f"~/{evaluated_run.name}/checkpoints/last.ckpt")


def test_a_repeat_needs_overwrite(evaluated_again, tmp_path):
    """And leaves nothing of the earlier one, such as the scores."""
    folder = shutil.copytree(evaluated_again, tmp_path / "run")
    path = folder / "evaluation" / "metrics.json"
    first = path.read_bytes()
    with pytest.raises(FileExistsError, match=r"Expected no earlier result, but .*`--overwrite true`"):
        run_evaluation(folder, checkpoint="best")
    assert path.read_bytes() == first
    run_evaluation(folder, "--overwrite", "true", checkpoint="best")
    assert strict(path)["timing"] != json.loads(first)["timing"]
    result = sorted(file.name for file in (folder / "evaluation").iterdir())
    assert result == ["classes.csv", "images.csv", "metrics.json", "report", "units.csv"]


def test_a_checkpoint_without_a_run_folder(finished_run, tmp_path):
    shutil.copy(finished_run / "checkpoints" / "last.ckpt", tmp_path / "mine.ckpt")
    flags = ["--limit", "4", "--trainer.accelerator=cpu", "--allow_classes=tests"]
    run_command("run", "--ckpt_path", "mine.ckpt", *flags)
    assert strict(tmp_path / "evaluation" / "metrics.json")["checkpoint"] == "mine.ckpt"


# -- mistakes ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (["--suite=genral"], ValueError, "Expected argument `suite` to hold names among .*but got .'genral'"),
        (["--split", "train"], SystemExit, "2"),
    ],
)
def test_mistakes_leave_no_result(arguments, kind, message, run_copy):
    with pytest.raises(kind, match=message):
        run_evaluation(run_copy, *arguments)
    assert not (run_copy / "evaluation").exists()


def test_a_missing_checkpoint(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"Expected argument `ckpt_path` to be a checkpoint file, but .*none.ckpt"
    ):
        run_command("run", "--ckpt_path", str(tmp_path / "none.ckpt"))


# -- predictions ------------------------------------------------------------------------------------------------------
def test_predict_writes_a_table_of_a_split_or_of_photos(evaluated_copy, tmp_path, capsys, monkeypatch):
    """The same for a photo as for the image of the data; a bad photo is named after the good ones are predicted."""
    command = ["predict", "--ckpt_path", str(evaluated_copy / "checkpoints" / "best.ckpt"), "--allow_classes", "tests"]
    command += ["--trainer.accelerator=cpu"]
    run_command(*command)
    assert f"predictions: {evaluated_copy / 'predictions.csv'}" in capsys.readouterr().out
    actual, known = table(evaluated_copy / "predictions.csv"), table(evaluated_copy / "evaluation" / "images.csv")
    assert [[row[name] for name in ("sample_id", *PREDICTION)] for row in actual] == [
        [row[name] for name in ("sample_id", *PREDICTION)] for row in known
    ]
    for row in actual:
        chances = [float(row[f"top{rank}_probability"]) for rank in (1, 2, 3)]
        assert (row["top1"], row["top1_probability"]) == (row["prediction"], row["probability"])
        assert chances == sorted(chances, reverse=True)
        assert len({row[f"top{rank}"] for rank in (1, 2, 3)}) == 3
    classes, flat = tmp_path / "photos", tmp_path / "flat"
    samples = [sample for _, sample in zip(range(4), load_datamodule(command[2]).dataset("test"), strict=False)]
    for sample, row in zip(samples, actual, strict=False):
        for folder in (flat, classes / ("Bird_" + row["label"][-1] if row is not actual[3] else "other")):
            folder.mkdir(parents=True, exist_ok=True)
            to_image(sample["image"]).save(folder / f"{row['sample_id'][-1]}.png")
    (flat / "bad.png").write_bytes(b"no image")
    (tmp_path / "mine.csv").write_text("mine")
    mine = [*command, "--output", str(tmp_path / "mine.csv"), "--image"]
    monkeypatch.setattr("protometry.datamodules.photos.photo_files.shows_crops", lambda _: True)
    with (
        pytest.raises(ValueError, match=r"2 of 10 files are not: .*bad.png.*there is none at .*none.png"),
        pytest.warns(UserWarning, match="trained on crops"),
    ):
        run_command(*mine, str(classes), str(flat), str(tmp_path / "none.png"))
    assert (tmp_path / "mine.csv").read_text() == "mine"
    seen = table(tmp_path / "mine-2.csv")
    assert [row["file"] for row in seen] == sorted(str(path) for path in tmp_path.rglob("[0-9].png"))
    for row in seen:
        (same,) = [each for each in actual if each["sample_id"].endswith(row["file"][-5])][:1]
        labelled = "Bird_" in row["file"]
        expected = same | ({} if labelled else {"label": "", "correct": ""})
        assert list(row.values())[1:] == list(expected.values())[1:]
    photo, framed = Image.open(flat / "0.png"), Image.new("RGB", (100, 90))
    framed.paste(photo, (10, 5))
    framed.save(tmp_path / "framed.png")
    crop = ["--crop", "10", "5", *map(str, photo.size)]
    run_command(*mine, str(tmp_path / "framed.png"), *crop)  # no warning: it is cut
    (cut,) = table(tmp_path / "mine-3.csv")
    assert [*cut.values()][1:] == [*next(row for row in seen if row["file"] == str(flat / "0.png")).values()][1:]
    (tmp_path / "empty").mkdir()
    for bad, kind, message in (
        (["--image", str(flat), *crop], ValueError, "a single `image` with `crop`"),
        (["--image", ""], ValueError, "to name images, but got ''"),
        (
            ["--image", str(flat), "--max_pixels", "9"],
            ValueError,
            r"5 of 5 files are not: .*more than `max_pixels` \(9\)",
        ),
        (["--image"], SystemExit, "2"),
        (["--image", str(flat), "--split", "test"], ValueError, "`image` or `split`, but got both"),
        (["--image", str(tmp_path / "empty")], FileNotFoundError, "empty to hold images"),
    ):
        with pytest.raises(kind, match=message):
            run_command(*command, *bad)


# -- one image --------------------------------------------------------------------------------------------------------
def test_explain_writes_a_picture_a_page_and_numbers_for_photos_and_ids(evaluated_copy, tmp_path):
    photo = tmp_path / "my photo.png"
    Image.new("RGB", (50, 40), "#884400").save(photo)
    checkpoint = ["--ckpt_path", str(evaluated_copy / "checkpoints" / "best.ckpt"), "--allow_classes", "tests"]
    run_command("explain", *checkpoint, "--image", str(photo), "--sample", "test/00001", "test/00002")
    names = sorted(path.name for path in (evaluated_copy / "explained").iterdir())
    stems = ["my-photo-png", "test-00001", "test-00002"]
    assert names == [f"{stem}.{ending}" for stem in stems for ending in ("html", "json", "png")]
    for bad, message in (
        ([], "`image` or `sample` to name an image"),
        (["--image", "a", "b", "--crop", "1", "2", "3", "4"], "a single `image` with `crop`"),
        (["--sample", "test/00001", "--crop", "1", "2", "3", "4"], "a single `image` with `crop`"),
        (["--image", str(photo), "--max_pixels", "9"], r"50x40 pixels .*, more than `max_pixels` \(9\); shrink it"),
        (["--sample", ""], "to name images, but got ''"),
        (["--sample", "nothing"], "ids of the 33 images, such as 'test/00000', but got 'nothing'"),
        (["--image", str(tmp_path / "no.png")], r"there is none at .*no\.png"),
    ):
        with pytest.raises(ValueError, match=message):
            run_command("explain", *checkpoint, *bad)
    (tmp_path / "several").mkdir()
    (tmp_path / "several" / "bad.png").touch()
    shutil.copy(photo, tmp_path / "several")
    with pytest.raises(ValueError, match=r"^Expected images, but 2 of 3 files are not: \S*bad\.png, \S*no\.png\.$"):
        run_command("explain", *checkpoint, "--image", str(tmp_path / "several"), str(tmp_path / "no.png"))
    run_command("explain", *checkpoint, "--image", str(photo), "--crop", "10", "5", "20", "30")
    result = {path.stem for path in (evaluated_copy / "explained").glob("*.png")}
    assert result == {*stems, "my-photo-png-2", "my-photo-png-3"}


# -- pages ------------------------------------------------------------------------------------------------------------
def test_pages_are_written_with_an_evaluation_and_again_on_their_own(evaluated_copy):
    shutil.rmtree(evaluated_copy / "evaluation")
    run_evaluation(evaluated_copy, "--suite", "general", "--report", "true")
    assert not (evaluated_copy / "evaluation" / "report").exists()  # nothing was explained
    limits = ["--limits.images=2", "--limits.units=2", "--limits.classes=2"]
    run_evaluation(evaluated_copy, "--suite", "localisation/energy", "--limit", "9", "--report", "true")
    (page,) = evaluated_copy.glob("evaluation/*/report/index.html")
    overview = page.read_text("utf-8")
    assert "9 images" in overview
    evaluation = page.parents[1]
    command = ["report", "--ckpt_path", str(evaluated_copy / "checkpoints" / "last.ckpt"), "--allow_classes", "tests"]
    run_command(*command, *limits, "--evaluation", str(evaluation))
    assert len(list(page.parent.glob("image-*.html"))) == 2
    run_command(*command, *limits)  # of the whole test split, although it is older
    assert (evaluated_copy / "evaluation" / "report" / "index.html").exists()
    with pytest.raises(ValueError, match=r"to be the evaluation of .*best\.ckpt, step 16, on the data of its run, but"):
        run_command(*[word.replace("last", "best") for word in command], "--evaluation", str(evaluation))
    with pytest.raises(FileNotFoundError, match=r"there is no metrics\.json"):
        run_command(*command, "--evaluation", str(evaluated_copy))


def test_an_explainer_of_classes_makes_no_pages(evaluated_copy, capsys):
    classes_only = ["--explainer", "protometry.explanations.SummedMaps"]
    run_evaluation(evaluated_copy, "--suite", "localisation/energy", "--limit", "4", "--report", "true", *classes_only)
    assert "no pages: explainer 'ssm' explains classes only\n" in capsys.readouterr().out
    assert not list(evaluated_copy.glob("evaluation/*ssm*/report"))
    checkpoint = ["--ckpt_path", str(evaluated_copy / "checkpoints" / "best.ckpt"), "--allow_classes", "tests"]
    for command in (["explain", "--sample", "test/00001"], ["report"]):
        with pytest.raises(ValueError, match=r"`explainer` to explain units, .* classes only\. Use one of .*GradCAM"):
            run_command(*command, *checkpoint, *classes_only)
