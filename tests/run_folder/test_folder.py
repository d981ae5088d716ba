"""Run folders: names, places to continue from, and settings that must not change."""

import os
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from lightning import Trainer
from lightning.fabric.plugins.environments import LightningEnvironment
from lightning.pytorch.trainer.states import TrainerFn

from protometry.run_folder.folder import (
    belongs_to,
    check_split,
    check_unchanged,
    resume_path,
)
from protometry.run_folder.free_folder import check_free
from protometry.run_folder.layout import check_name, run_name
from protometry.run_folder.settings import changed_arguments
from protometry.run_folder.slurm import RequeuedTrainer, mark_as_queued
from tests.empty_checkpoint import EMPTY


# -- names ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("content", "advice"), [({}, "Resume it with .*, or start"), ({"released": {}}, "one. Start")])
def test_weights_trained_elsewhere_are_not_to_be_resumed(content, advice, run, monkeypatch):
    monkeypatch.setattr("protometry.run_folder.folder.read_checkpoint", lambda *args, **options: content)
    with pytest.raises(ValueError, match=f"{advice} another with `--experiment NAME`"):
        resume_path(run("checkpoints/last.ckpt"), None)


@pytest.mark.parametrize(
    ("model", "data", "fold", "seed", "name"),
    [
        ("protometry.lightning_modules.PIPNet", "protometry.datamodules.Cub200", 0, 0, "cub200/pipnet-fold0-seed0"),
        ("ProtoPNet", "mine.SketchBirds", None, 7, "sketchbirds/protopnet-seed7"),
    ],
)
def test_run_name(model, data, fold, seed, name):
    assert run_name(model, data, fold, seed) == name


@pytest.mark.parametrize("name", ["", "/x", "../x", "a/../../x", "a\nb"])
def test_a_name_that_leads_elsewhere(name):
    with pytest.raises(ValueError, match=r"Expected `name` in x.yaml to name a folder below `--runs`, but got"):
        check_name(name, "`name` in x.yaml")


# -- where a run continues --------------------------------------------------------------------------------------------
@pytest.fixture
def run(tmp_path):
    def make(*names, name="run"):
        for age, path in enumerate(names):
            (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / path).touch()
            os.utime(tmp_path / name / path, (age, age))
        return tmp_path / name

    return make


def test_a_fresh_run(run):
    assert resume_path(run(), None) is None


def test_last(run):
    folder = run("checkpoints/last.ckpt", "hpc_ckpt_1.ckpt")
    assert resume_path(folder, "last") == folder / "checkpoints" / "last.ckpt"
    with pytest.raises(FileNotFoundError, match=r"Expected .*other/checkpoints/last.ckpt to resume from"):
        resume_path(run(name="other"), "last")


def test_an_earlier_run_is_never_overwritten(run):
    folder, other = run("checkpoints/last.ckpt", "checkpoints/best.ckpt"), run("checkpoints/last.ckpt", name="other")
    for path in (None, other / "checkpoints" / "last.ckpt", "last.ckpt"):
        with pytest.raises(ValueError, match=r"Expected a folder without a run, but .* holds one"):
            resume_path(folder, path and str(path))
    own = folder / "checkpoints" / "best.ckpt"
    assert resume_path(folder, str(own)) == own
    assert resume_path(run(name="new"), str(own)) == own


LAST = "checkpoints/last.ckpt"


@pytest.mark.parametrize(
    ("steps", "newest"),
    [
        ({"hpc_ckpt_1.ckpt": 6, LAST: 4}, "hpc_ckpt_1.ckpt"),
        ({"hpc_ckpt_9.ckpt": 6, LAST: 8, "hpc_ckpt_10.ckpt": 10}, "hpc_ckpt_10.ckpt"),
        ({LAST: 12, "hpc_ckpt_1.ckpt": 10}, LAST),  # whichever file is newer, such as in a copy of the folder
        ({LAST: 12, "hpc_ckpt_1.ckpt": 12}, LAST),
        ({"hpc_ckpt_1.ckpt": 6}, "hpc_ckpt_1.ckpt"),
    ],
)
def test_a_queued_run_takes_the_newest_state_and_says_so(steps, newest, run, caplog):
    folder = run(*steps)
    for name, step in steps.items():
        torch.save(EMPTY | {"global_step": step}, folder / name)
    assert resume_path(folder, None) == folder / newest
    assert f"The job was queued again: the training continues from {folder / newest}" in caplog.text


@pytest.mark.parametrize("how", ["marked", "restarted"])
def test_a_run_that_was_queued_again_continues_from_its_last_epoch(how, run, monkeypatch):
    folder = run(LAST)
    torch.save(EMPTY, folder / LAST)
    if how == "restarted":
        monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    for _ in range(2):
        if how == "marked":
            mark_as_queued(folder)
        assert resume_path(folder, None) == folder / LAST
    assert resume_path(run(name="new"), None) is None
    mark_as_queued(run(name="new"))  # no checkpoint yet
    assert resume_path(run(name="new"), None) is None


@pytest.mark.parametrize("kind", [Trainer, RequeuedTrainer])
def test_an_evaluation_under_slurm_loads_no_state_of_a_queued_job(kind, run, monkeypatch):
    folder = run(LAST, "hpc_ckpt_1.ckpt")
    monkeypatch.setenv("SLURM_NTASKS", "1")
    trainer = kind(accelerator="cpu", logger=False, default_root_dir=folder, plugins=[LightningEnvironment()])
    chosen = trainer._checkpoint_connector._parse_ckpt_path(TrainerFn.TESTING, None, True, True)
    assert chosen == {Trainer: str(folder / "hpc_ckpt_1.ckpt")}.get(kind)  # what Lightning would evaluate instead


def test_belonging_follows_links(run, tmp_path):
    folder = run("checkpoints/last.ckpt")
    (tmp_path / "link").symlink_to(folder)
    assert belongs_to(folder, tmp_path / "link" / "checkpoints" / "last.ckpt")
    assert not belongs_to(folder, tmp_path / "run2" / "checkpoints" / "last.ckpt")
    assert not belongs_to(folder, folder / "sub" / "checkpoints" / "last.ckpt")


RUN = ("run/config.yaml", "run/checkpoints/best.ckpt")


@pytest.mark.parametrize(
    ("names", "name", "said"),
    [
        (["run/config.yaml"], "run", "without files of a run, but .*/run holds config.yaml"),
        (["run/metrics.csv", "run/checkpoints/best.ckpt"], "run", ".* checkpoints/best.ckpt, metrics.csv. Name"),
        (RUN, "run/sub", "outside of other runs, but .*/run/sub lies in the run .*/run. Name another"),
        (RUN, "run/checkpoints", "outside of other runs, but .*/run/checkpoints lies in the run .*/run. Name another"),
        (RUN, ".", "without other runs, but .* holds the run .*/run. Name another with `--experiment NAME` or `--runs"),
        ([*RUN, "sweep.json", "train.log"], "other", None),
        (["run/sweep.json", "run/train.log", "run/.lock", "run/wandb/x"], "run", None),
    ],
)
def test_a_run_begins_in_a_folder_of_its_own(names, name, said, run, tmp_path):
    run(*names, name=".")
    with pytest.raises(ValueError, match=f"Expected a folder {said}") if said else nullcontext():
        check_free(tmp_path / name)


# -- settings ---------------------------------------------------------------------------------------------------------
MODEL = {
    "class_path": "protometry.lightning_modules.ProtoPNet",
    "init_args": {"preset": "sketch", "phases": {"warm": {"epochs": 1}}},
}
DATA = {
    "class_path": "protometry.datamodules.Cub200",
    "init_args": {"root": "a", "fold": 0, "image_size": [32, 64], "num_workers": 0, "split_file": "~/s.json"}
    | {"verify": "decode", "download": False},
}


@pytest.fixture
def path(tmp_path):
    stored = [{"_class_path": part["class_path"]} | part["init_args"] for part in (MODEL, DATA)]
    stored[0] |= {"num_classes": 200, "image_size": (32, 64)}
    content = {"hyper_parameters": stored[0], "datamodule_hyper_parameters": stored[1]}
    torch.save(content | {"state_dict": {}, "loops": {}, "callbacks": {}, "global_step": 5}, tmp_path / "x.ckpt")
    return tmp_path / "x.ckpt"


def changed(part, **arguments):
    return part | {"init_args": part["init_args"] | arguments}


@pytest.mark.parametrize(
    ("model", "data"),
    [
        (MODEL, DATA),
        (changed(MODEL, num_classes=None, image_size=None), DATA),
        (MODEL, changed(DATA, root="b", num_workers=4, eval_batch_size=1)),
        (MODEL, changed(DATA, verify="header", download=True)),
        (MODEL, changed(DATA, image_size=(32, 64))),
        (changed(MODEL, added_since=3), DATA),
        (changed(MODEL, phases={"warm": {"epochs": 1, "scheduler": None}}), DATA),  # a missing key equals null
        (MODEL, changed(DATA, split_file=str(Path.home() / "s.json"))),  # older checkpoints have it as typed
    ],
)
def test_equal_settings(model, data, path):
    assert check_unchanged(path, model, data)["global_step"] == 5


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        (changed(MODEL, preset="fast"), DATA, "model.preset: 'sketch' in the run, 'fast' requested"),
        (changed(MODEL, phases=None), DATA, "model.phases: {'warm': {'epochs': 1}} in the run, None requested"),
        (MODEL, changed(DATA, fold=None), "data.fold: 0 in the run, None requested"),
        (MODEL, DATA | {"class_path": "protometry.datamodules.Nico"}, "data: .*Cub200 in the run, .*Nico requested"),
        (changed(MODEL, preset="x"), changed(DATA, fold=1), "model.preset.*; data.fold: 0 in the run, 1 reque"),
    ],
)
def test_changed_settings(model, data, message, path):
    with pytest.raises(ValueError, match=f"Expected the settings that .*x.ckpt was trained with.*{message}"):
        check_unchanged(path, model, data)


def test_a_resumed_run_must_have_the_split_it_began_with(tmp_path):
    path = tmp_path / "split.json"
    check_split({"test": ["1"]}, path)
    path.write_text('{\n "test": [\n  "1"\n ]\n}\n')
    check_split({"test": ["1"]}, path)
    with pytest.raises(ValueError, match="Expected the split this run began with"):
        check_split({"test": ["2"]}, path)


def test_a_phase_that_is_removed_is_another_setting():
    stored = {"phases": {"warm": {"epochs": 1}}}
    assert not changed_arguments("model", stored, {"phases": {"warm": {"epochs": 1, "scheduler": None}}})
    assert changed_arguments("model", stored, {"phases": {"warm": {"epochs": 1}, "last": None}}) == [
        "model.phases.last: 'left to the model' in the run, None requested"
    ]
