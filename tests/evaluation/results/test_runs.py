"""Reading evaluations back: every way to name one, and every way a file can be wrong."""

import json
import os

import pytest

from protometry.evaluation.results.metrics_json import write_metrics
from protometry.evaluation.results.runs import collect, passed_over, read
from tests.evaluation.explained.evaluated import content, entry, rewrite, write_run


@pytest.fixture
def run(tmp_path):
    metrics = {"general/f1": entry(0.25, 0.2, 0.3), "contrastivity/entropy": entry(None, unit="bits", higher=False)}
    return write_run(tmp_path / "run", metrics, skipped={"complexity/iord": "no segmentations"})


def changed(key, value):
    """Another value of a key of the file."""
    return lambda text: json.dumps(json.loads(text) | {key: value})


# -- finding ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("below", ["", "evaluation", "evaluation/metrics.json"])
def test_a_run_has_three_names(run, below):
    (result,) = collect([run / below])
    assert (result.path, result.run) == (run / "evaluation" / "metrics.json", run)
    assert (result.model, result.dataset, result.fold, result.explainer) == ("ProtoPNet", "cub200", 0, "prp")
    actual = result.metrics["general/f1"]
    assert (actual.value, actual.low, actual.high, actual.unit) == (0.25, 0.2, 0.3, "fraction")
    assert result.metrics["contrastivity/entropy"].value is None
    assert result.skipped == {"complexity/iord": "no segmentations"}


@pytest.mark.parametrize("name", ["runs", "runs/*", "runs/fold*"])
def test_a_folder_or_a_pattern_stands_for_the_runs_in_it(tmp_path, name):
    for fold in (1, 0):
        write_run(tmp_path / "runs" / f"fold{fold}", {"general/f1": 0.5}, fold=fold)
    (tmp_path / "runs" / "notes").mkdir()
    assert [result.fold for result in collect([tmp_path / name])] == [0, 1]
    with pytest.raises(FileNotFoundError, match=r"it is a folder of runs. Name one of them, such as .*runs/fold0\."):
        read(tmp_path / "runs")  # as one of two to compare
    (tmp_path / "runs" / "fold2" / "checkpoints").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="fold2 to be an evaluated run"):  # not left out without a word
        collect([tmp_path / name])


LAST, ENDED = "checkpoints/last.ckpt", {"images": 10, "ended": "2026-01-02T03:04:05+00:00"}
RANDOM, GRAD_CAM = {"asked_explainer": "random()"}, {"asked_explainer": "grad_cam()"}
OTHER = {"config": "other.yaml", "classes": 3, "matched": 2}


@pytest.mark.parametrize(("first", "later", "stands"), [
    ({}, {"step": 9}, "later"), ({}, {"seed": 1}, "later"),
    ({"checkpoint": LAST}, {"checkpoint": LAST, "step": 9}, "later"),
    ({}, {"checkpoint": LAST, "step": 9}, "first"),  # training chose the best
    ({}, {"step": 9, "protocol": RANDOM}, "first"),  # explained as the model asks
    ({"protocol": RANDOM}, {"checkpoint": LAST}, "first"),
    ({"protocol": GRAD_CAM}, {"step": 9, "protocol": RANDOM}, "first"),  # asked for in the config of the run
    ({"protocol": GRAD_CAM}, {"step": 9, "protocol": GRAD_CAM}, "later"), ({"limit": 8}, {"checkpoint": LAST}, "later"),
    ({}, {"step": 9, "limit": 8}, "first"), ({}, {"step": 9, "split": "val"}, "first"),
    ({}, {"step": 9, "other_data": OTHER}, "first"), ({"limit": 8}, {"other_data": OTHER}, "first"),
    ({"timing": ENDED}, {"timing": ENDED | {"ended": "2026-01-02T03:04:04+00:00"}}, "first"),
])  # fmt: skip
def test_a_run_stands_for_its_newest_whole_evaluation_of_the_chosen_checkpoint(tmp_path, first, later, stands):
    folders = {"first": tmp_path / "evaluation", "later": tmp_path / "evaluation" / "later"}
    for seconds, (name, changes) in enumerate({"first": first, "later": later}.items()):
        write_metrics(content({"general/f1": 0.5}, **changes), folders[name])
        os.utime(folders[name] / "metrics.json", (seconds, seconds))
    result = read(tmp_path)
    assert result.path.parent == folders.pop(stands)
    (other,) = result.others
    assert [other.path.parent] == list(folders.values())
    assert read(other.path.parent).others == ()  # named by its own folder


def test_a_source_says_what_was_read(run):
    assert read(run).source == "evaluation, best.ckpt at step 4"
    few = content(
        {"general/f1": 0.5, "continuity/cac": 0.1}, checkpoint=LAST, step=9, split="val", limit=8, other_data=OTHER
    )
    write_metrics(few, run / "evaluation" / "few")
    expected = "evaluation/few, last.ckpt at step 9, split val, limit 8, other_data other.yaml, 1 further metric"
    assert passed_over(read(run)) == expected


def test_the_run_of_a_further_evaluation_and_of_a_file_elsewhere(run, tmp_path):
    write_metrics(content({"general/f1": 0.5}, split="val"), run / "evaluation" / "last-step4-val")
    assert (read(run / "evaluation" / "last-step4-val").run, read(run).split) == (run, "test")
    (tmp_path / "mine.json").write_text(json.dumps(content({})))
    assert read(tmp_path / "mine.json").run == tmp_path


# -- conditions -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("change", "same"), [
    ({"fold": 3}, True), ({"seed": 3}, True), ({"suite": ["general"]}, True),
    ({"checkpoint": "checkpoints/last.ckpt"}, True), ({"protocol": {"signed_maps": True}}, True),
    ({"protocol": {"images_per_forward": 7, "device": "cuda", "memory_budget": 8.0}}, True),
    ({"protocol": {"codecs": {"opencv": "5.0.0"}}}, True),
    ({"protocol": {"decision_threshold": 0.25}}, True),  # fitted, to other validation images in every fold
    ({"training": {"batch_size": 32}}, False), ({"fold": None}, False), ({"split": "val"}, False),
    ({"limit": 5}, False), ({"dataset": "cars196"}, False), ({"model": "PIPNet"}, False),
    ({"explainer": "upsample"}, False), ({"protocol": {"variant": "quanproto"}}, False),
    ({"protocol": {"crop": "none"}}, False), ({"protocol": {"something_new": 1}}, False),
])  # fmt: skip
def test_what_decides_comparability(tmp_path, change, same):
    first = write_run(tmp_path / "a", {"general/f1": 0.5})
    second = write_run(tmp_path / "b", {"general/f1": 0.5}, **change)
    assert (read(first).conditions == read(second).conditions) == same


# -- mistakes ---------------------------------------------------------------------------------------------------------
AT_WORK = "process 7 on host is at work in .*{}, or was stopped there"


@pytest.mark.parametrize(("named", "file", "reason"), [
    ("none", "notes.txt", "there is no such file or folder"),
    ("empty", "empty/notes.txt", "there is none. Run `python evaluate.py run --ckpt_path"),
    ("a", "a/evaluation/.lock", AT_WORK.format("a/evaluation")),
    ("a/evaluation", "a/evaluation/.lock", AT_WORK.format("a/evaluation")),
    ("a", "a/evaluation/x/.lock", AT_WORK.format("a/evaluation/x")),
    ("a", "a/evaluation/x/metrics.json", "it was evaluated on other data only. .* evaluation: .*evaluation/x"),
])  # fmt: skip
def test_nothing_there(tmp_path, named, file, reason):
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(json.dumps(content({}, other_data=OTHER)) if "json" in file else "process 7 on host")
    with pytest.raises(FileNotFoundError, match=f"Expected .*{named} to be an evaluated run, .*, but {reason}"):
        collect([tmp_path / named])


def test_no_run_and_the_same_evaluation_twice(run):
    with pytest.raises(ValueError, match="Expected argument `runs` to name at least one run"):
        collect([])
    with pytest.raises(ValueError, match=r"name every evaluation once, but got .*metrics.json twice"):
        collect([run, run / "evaluation"])


@pytest.mark.parametrize(("change", "message"), [
    (lambda text: text.replace("0.25", "NaN"), "to hold strict JSON, but NaN is not JSON"),
    (lambda text: text.replace("0.25", "Infinity"), "to hold strict JSON, but Infinity is not JSON"),
    (lambda text: '{"seed": 1,' + text.lstrip()[1:], "to hold strict JSON, but the key 'seed' appears twice"),
    (lambda text: text[:-5], "to hold strict JSON, but"), (lambda text: "", "to hold strict JSON, but"),
    (lambda text: "[" * 100_000, "to hold strict JSON, but maximum recursion depth exceeded"),
    (lambda text: "[1]", "input should be a valid dictionary"),
    (changed("schema", 2), "`schema`: input should be less than or equal to 1, got 2"),
    (lambda text: text.replace('"skipped": {\n    "comp', '"skip": {\n    "comp'), "but it lacks `skipped`"),
    (lambda text: text.replace("0.25", "1e999"), "`metrics.general/f1.value`: input should be a finite number"),
    (lambda text: text.replace('"ci95"', '"ci"'), "it lacks `metrics.general/f1.ci95`"),
    (lambda text: text.replace("      0.2,\n", ""), "`metrics.general/f1.ci95`: list should have at least 2 items"),
    (changed("metrics", {"general/f1": entry(5.0)}), "`general/f1` is 5.0, outside its range from -1e-09 to 1"),
    (changed("metrics", {"a/b": entry(0.5) | {"lift": "x", "lift_low": 0, "lift_high": 0}}), "a/b, lift.value`"),
    (lambda text: text.replace('"training": {', '"trained": {'), "it lacks `training`"),
    (changed("metrics", []), "`metrics`: input should be a valid dictionary"),
    (changed("metrics", {"general/f1": entry(0.5, 0.9, 0.1)}), "`ci95` begins at 0.9, above its end at 0.1"),
    (changed("split", None), "`split`: input should be 'test' or 'val', got None"),
    (changed("training", {"complete": False}), "which is not complete, lacks epochs, phase, phases, projected"),
])  # fmt: skip
def test_a_wrong_file_is_named(run, change, message):
    path = rewrite(run, change)
    with pytest.raises(ValueError, match=f"Expected {path} .*{message}"):
        collect([run])
