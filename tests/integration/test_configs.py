"""Every yaml in ``configs/`` parses and builds a model, its data and its optimisers, by the command it opens with."""

import inspect
import itertools
import shlex
from pathlib import Path

import pytest

from protometry import datamodules
from protometry.callbacks import Interpretability, PhaseSchedule
from protometry.callbacks.phases.phase_schedule import ACTIONS
from protometry.evaluation.published.numbers import published
from protometry.scripts import train
from tests.cub_tree import make_cub
from tests.datamodules.registry import SETS
from tests.tiny_runs import ROOT, only_fit

FILES = (path.relative_to(ROOT) for path in (ROOT / "configs").rglob("*.yaml"))
CONFIGS = sorted(
    path.as_posix() for path in FILES if path.parts[1] not in ("study", "sweep")
)  # which do not train by themselves
PARTNERS = {"logger": "configs/quickstart.yaml"}  # of fragments, by folder
TREES = {made.kind: made.write for made in reversed(SETS.values())}  # what writes a few files of a data module
TREES["Cub200"] = lambda root: make_cub(root, classes=201, per_class=1)


class InstantiatedError(Exception):
    """Ends a command before it trains."""


def command_of(config):
    """The words after ``python train.py`` in the first line; fragments are combined with a partner."""
    if partner := PARTNERS.get(config.split("/")[1]):
        return ["fit", "--config", partner, "--config", config]
    first = (ROOT / config).read_text().splitlines()[0]
    assert first.startswith("# python train.py fit "), f"{config} must open with its exact command"
    assert f"--config {config}" in first, f"the command of {config} must use it"
    return shlex.split(first.removeprefix("# python train.py"))


def test_there_are_configs():
    assert "configs/quickstart.yaml" in CONFIGS


def test_every_data_module_has_a_config():
    modules = {path.removeprefix("configs/data/").removesuffix(".yaml") for path in CONFIGS if "/data/" in path}
    kinds = [kind for name in datamodules.__all__ if not inspect.isabstract(kind := getattr(datamodules, name))]
    of_all_sets = {"load", "wrapped"}  # what loads, and what wraps data sets of others
    assert modules == {kind.__module__.split(".")[2] for kind in kinds} - of_all_sets


QUICKSTART = [name for name in CONFIGS if "quickstart" in name]


@pytest.mark.parametrize("config", QUICKSTART)  # the others: tests/slow
def test_the_command_of_a_config_instantiates(config, tmp_path, monkeypatch):
    words = command_of(config)
    collected = {}

    def stop(cli):
        collected["cli"] = cli
        raise InstantiatedError

    monkeypatch.setattr(train.TrainCLI, "before_fit", stop, raising=False)
    monkeypatch.chdir(ROOT)
    text = "".join((ROOT / word).read_text() for word in words if word.endswith(".yaml"))
    if "DIR" in words:
        kinds = [kind for kind in TREES if f"class_path: {kind}\n" in text]
        assert len(kinds) == 1, f"the data of {config} needs a small tree: add one to TREES"
        root = str(TREES[kinds[0]](tmp_path / "data"))
        words = [root if word == "DIR" else word for word in words]
    if "--data.table" in words:
        photos = sorted(path.relative_to(root).as_posix() for path in Path(root).rglob("*.*g"))
        rows = [f"{photo},{index % 2},{index % 3 % 2}" for index, photo in enumerate(photos)]
        (Path(root) / "photos.csv").write_text("\n".join(["image,attribute:striped,attribute:large", *rows]))
    if "weights:" in text or any("backbone.weights" in word for word in words):
        words += ["--model.backbone.weights=null"]  # nothing is fetched
    with only_fit(), pytest.raises(InstantiatedError):
        train.main([*words, "--runs", str(tmp_path), "--trainer.accelerator=cpu"])
    assert_trainable(collected["cli"])


def opening(config):
    """The comment a file opens with."""
    return "".join(itertools.takewhile(lambda line: line.startswith("#"), (ROOT / config).open()))


@pytest.mark.parametrize("config", [name for name in CONFIGS if "/quanproto/" in name])
def test_a_published_score_is_the_published_score(config):
    model, data = Path(config).stem.split("_")
    (record,) = [
        row
        for row in published("quanproto")
        if (row.base_model.lower(), row.dataset, row.base_key) == (model, data, "general/accuracy")
        and "pruned" not in row.qualifiers
    ]
    assert f"They report {100 * record.value:.2f} % ± {100 * record.std:.2f} " in opening(config)


def assert_trainable(cli):
    model, data, callbacks = cli.model, cli.datamodule, cli.trainer.callbacks
    assert model.num_classes == data.num_classes
    assert model.image_size == data.image_size
    assert isinstance(callbacks[0], PhaseSchedule)
    plan, groups = model.phases(), model.parameter_groups()
    plan.check(groups, model.loss_terms(), [*ACTIONS, *model.actions])
    for index in range(len(plan.phases)):
        plan.build(index, groups, steps_per_epoch=2)
    (engine,) = [callback for callback in callbacks if isinstance(callback, Interpretability)]
    assert engine.suite
