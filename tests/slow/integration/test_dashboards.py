"""What a run that is interrupted, resumed and evaluated leaves in W&B, TensorBoard, its folder and the terminal."""

import contextlib
import csv
import io
import math
import re

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from protometry.callbacks import read_checkpoint
from protometry.callbacks.run.training_curves import training_curves
from protometry.explanations.charts import to_picture
from tests.pages import DOCS
from tests.tiny_runs import EPOCHS, STEPS_PER_EPOCH, fit
from tests.wandb_files import history, segments, table

LOGGERS = [f"--trainer.logger+={name}" for name in ("RunWandbLogger", "RunTensorBoardLogger")]
FEW = ["--explanations.images=2", "--explanations.top_k=2", "--explanations.units=3"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that ends after its third epoch, goes on and is evaluated, and what the terminal showed of each part."""
    folder = tmp_path_factory.mktemp("runs") / "shown"
    more = [*LOGGERS, *FEW, "--evaluation.suite=[general, completeness/psc, alignment/consistency]"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        fit(folder, *more, "--trainer.max_epochs=3", drawn=True)
        with contextlib.redirect_stdout(io.StringIO()) as terminal:
            fit(folder, *more, "--trainer.max_epochs=-1", "--test_after_fit=true", "--ckpt_path=last", drawn=True)
    return folder, segments(folder), terminal.getvalue().splitlines()


def every_key():
    """The keys of the sections of a workspace, as the page names them."""
    table = (DOCS / "dashboards.md").read_text("utf-8").partition("| section |")[2].partition("\n\n")[0]
    return {key for key in re.findall("`(.+?)`", table) if not key.startswith("^")}


def every(parts, key):
    return [value for part in parts for value in history(part, key)]


def test_one_run_holds_every_key_of_the_workspace(run):
    _, parts, _ = run
    assert len(parts) == 3  # two trainings and the evaluation
    assert len({part.run.run_id for part in parts}) == 1
    assert all(part.run.resume for part in parts)
    logged = {key for part in parts for row in part.history for key in row}
    assert len(every_key()) == 10
    for key in every_key():
        assert key in logged or any(name.startswith(f"{key}/") for name in logged), key


def test_the_phase_is_a_series_whose_names_are_in_the_config(run):
    _, parts, _ = run
    assert parts[0].config["phases"] == ["warm", "joint", "last", "joint2"]
    assert every(parts, "phase") == [0, 1, 1, 2, 3]
    steps = [row["trainer/global_step"] for part in parts for row in part.history if "phase" in row]
    assert steps == [STEPS_PER_EPOCH * (epoch + 1) - 1 for epoch in range(EPOCHS)]


def test_the_same_images_and_units_are_shown_at_the_end_of_every_phase(run):
    folder, parts, _ = run
    names = [f"{phase}-epoch{epoch:02d}" for phase, epoch in (("warm", 0), ("joint", 2), ("last", 3), ("joint2", 4))]
    sheets = sorted(path.name for path in (folder / "explanations").iterdir())
    assert sheets == sorted(f"{name}{ending}.png" for name in names for ending in ("", "-units"))
    media = every(parts, "media/explanations")
    assert [entry["count"] for entry in media] == [2] * 4
    shown = [[caption.partition(": ")[0] for caption in entry["captions"]] for entry in media]
    assert shown == shown[:1] * 4
    assert all(name.startswith("val/") for name in shown[0])
    assert len(every(parts, "media/units")) == 4


def test_the_suite_is_a_table(run):
    _, parts, _ = run
    (suite,) = [table(parts[-1], entry) for entry in history(parts[-1], "tables/evaluation/test")]
    families = [row["family"] for row in suite]
    assert families == sorted(families, key=families.index)
    by_key = {f"{row['family']}/{row['metric']}": row for row in suite}
    accuracy = by_key["general/accuracy"]
    assert (accuracy["n"], accuracy["better"], accuracy["not applicable because"]) == (33, "higher", None)
    assert accuracy["low"] <= accuracy["value"] <= accuracy["high"]


def test_the_figure_of_the_training_holds_all_epochs_of_both_parts(run):
    folder, _, _ = run
    states = read_checkpoint(folder / "checkpoints" / "last.ckpt")["callbacks"]
    (rows,) = [state["rows"] for name, state in states.items() if "Curves" in name]
    assert [row["phase"] for row in rows] == ["warm", "joint", "joint", "last", "joint2"]
    with (folder / "metrics.csv").open(newline="") as file:
        losses = [float(row["train/loss"]) for row in csv.DictReader(file) if row["train/loss"]]
    assert [row["train/loss"] for row in rows] == losses
    expected = np.asarray(to_picture(training_curves(rows)))
    assert np.array_equal(np.asarray(Image.open(folder / "training.png")), expected)


def test_tensorboard_gets_the_same(run):
    folder, _, _ = run
    sizes = {"scalars": 0, "images": 0, "tensors": 0}
    result = EventAccumulator(str(folder / "tensorboard"), size_guidance=sizes).Reload()
    assert [event.value for event in result.Scalars("phase")] == [0, 1, 1, 2, 3]
    tags = result.Tags()
    for key in ("media/explanations", "media/units", "media/prototypes"):
        assert f"{key}/000" in tags["images"]
    assert "tables/evaluation/test/text_summary" in tags["tensors"]
    (accuracy,) = result.Scalars("test/general/accuracy")
    assert math.isfinite(accuracy.value)


def test_one_screen_before_and_a_few_lines_after(run):
    folder, _, lines = run
    start = lines.index("NoisyProtoPNet on SketchBirds")
    screen = [line.rstrip() for line in lines[start : lines.index("", start)]]
    screen += [line.rstrip() for line in lines[start + len(screen) : lines.index("", start + 14) + 1]]
    assert len(screen) <= 24
    assert "data        48 training, 16 validation images of 32 × 32 pixels" in screen
    assert "units       16 of kind prototype, for 8 classes" in screen
    (total,) = [line for line in screen if line.startswith("parameters")]
    assert "prototypes 256" in total
    table = [line.split() for line in screen if line.split()[:1] in (["warm"], ["joint"], ["last"], ["joint2"])]
    assert [row[1:4] for row in table[:2]] == [["1", "of", "1"], ["2", "of", "2"]]
    assert [row[:2] for row in table[2:]] == [["last", "1"], ["joint2", "1"]]
    assert any("first project" in line for line in screen)
    assert f"run folder  {folder}" in screen
    (wandb,) = [line for line in screen if line.startswith("W&B")]
    assert wandb.startswith("W&B         offline, run ")
    after = lines[next(i for i, line in enumerate(lines) if line.startswith("Trained 2 epochs in ")) :]
    words = ["Trained", "validation", "test", "checkpoint", "curves", "run", "pages"]
    assert [line.split()[0] for line in after] == words
    assert after[1].endswith(" % at best among the epochs after projection (phase last)")
    assert re.match(r"test        general/accuracy [\d.]+ % on 33 images$", after[2])
    assert after[3] == f"checkpoint  {folder}/checkpoints/best.ckpt"
    assert after[6] == f"pages       {folder}/evaluation/report/index.html"
    assert (folder / "evaluation" / "report" / "index.html").exists()
