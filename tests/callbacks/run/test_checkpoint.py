"""Checkpoints: written as a whole or not at all, the best one from a selectable phase."""

import errno
import os
import resource
from types import SimpleNamespace
from unittest import mock

import pytest
import torch

from protometry.callbacks.evaluation.interpretability import Interpretability
from protometry.callbacks.run import checkpoint as checkpoint_module
from protometry.callbacks.run.checkpoint import AtomicCheckpointIO, RunCheckpoint
from protometry.callbacks.run.training_record import how_made
from protometry.lightning_modules.phases import Phase, PhasePlan
from protometry.run_folder.checkpoint_file import read_checkpoint
from tests.lightning_modules.registry import MODELS

WHOLE = {
    "state_dict": {"weight": torch.arange(6.0).view(2, 3)},
    "hyper_parameters": {"_class_path": "protometry.lightning_modules.ProtoPNet", "lr": 0.5},
    "datamodule_hyper_parameters": {"_class_path": "protometry.datamodules.SketchBirds"},
    "global_step": 3,
    "loops": {},
    "callbacks": {},
}


class Planted:
    def __reduce__(self):
        return os.mkdir, ("ran",)


# -- reading ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("options", [{}, {"mmap": True}])
def test_reads_what_was_written(options, tmp_path):
    AtomicCheckpointIO().save_checkpoint(WHOLE, tmp_path / "new" / "folder" / "x.ckpt")
    read = read_checkpoint(tmp_path / "new" / "folder" / "x.ckpt", **options)
    assert read.keys() == WHOLE.keys()
    assert torch.equal(read["state_dict"]["weight"], WHOLE["state_dict"]["weight"])


def test_whatever_the_caller_asks_no_code_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for new in (True, False):
        torch.save(WHOLE | {"callbacks": Planted()}, "x.ckpt", _use_new_zipfile_serialization=new)
        with pytest.raises(ValueError, match="damaged or foreign"):
            AtomicCheckpointIO().load_checkpoint("x.ckpt", weights_only=False)
    assert not os.path.exists("ran")


# -- writing ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("earlier", "kept"), [(True, "the earlier x.ckpt is untouched"), (False, "there is no x.ckpt")]
)
@pytest.mark.parametrize("broken", ["save", "replace", "size"])
def test_a_failure_leaves_the_earlier_file(broken, earlier, kept, tmp_path, monkeypatch):
    path, io = tmp_path / "x.ckpt", AtomicCheckpointIO()
    if earlier:
        io.save_checkpoint(WHOLE, path)
    large = WHOLE | {"state_dict": {"weight": torch.zeros(100_000)}}

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        if broken == "size":  # the system itself refuses to write more
            resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
        else:
            monkeypatch.setattr(*((checkpoint_module.torch, "save") if broken == "save" else (os, "replace")), full)
        with pytest.raises(OSError, match=rf"Could not write the checkpoint .*x.ckpt \(.*\); {kept}"):
            io.save_checkpoint(large, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [file.name for file in tmp_path.iterdir()] == ["x.ckpt"] * earlier
    if earlier:
        assert torch.equal(read_checkpoint(path)["state_dict"]["weight"], WHOLE["state_dict"]["weight"])


# -- which and when ---------------------------------------------------------------------------------------------------
PLAN = PhasePlan(
    (
        Phase("warm", 1, {"head": 0.1}, {}),
        Phase("last", 4, {"head": 0.1}, {}, selectable=True),
        Phase("after", 1, {"head": 0.1}, {}),
    )
)
MODULE = SimpleNamespace(phases=lambda: PLAN)


class FakeTrainer:
    def __init__(self, folder, **changes):
        self.default_root_dir = str(folder)
        self.saved, self.callback_metrics, self.callbacks, self.loggers = [], {}, [], []
        self.global_step = self.current_epoch = 0
        self.fast_dev_run = self.sanity_checking = False
        self.state = SimpleNamespace(fn="fit")
        self._logger_connector = mock.Mock()
        self.fit_loop = SimpleNamespace(epoch_loop=SimpleNamespace(_batches_that_stepped=0))
        vars(self).update(changes)

    def save_checkpoint(self, path, weights_only):
        self.saved.append(path.name)


def run(keeper, trainer, scores):
    """The files saved at the end of each epoch; a score of None is an epoch without validation."""
    saved = []
    for trainer.current_epoch, score in enumerate(scores):
        if score is not None:
            trainer.callback_metrics = {keeper.monitor: torch.tensor(score)}
            keeper.on_validation_end(trainer, MODULE)
        trainer.saved = []
        trainer._logger_connector.update_train_epoch_metrics.side_effect = lambda: trainer.saved.append("row")
        keeper.on_train_epoch_end(trainer, MODULE)
        assert trainer.saved.pop(0) == "row"  # what a checkpoint is about is on disk before it
        saved.append(trainer.saved)
    return saved


@pytest.mark.parametrize(("mode", "sign"), [("max", 1), ("min", -1)])
def test_the_best_epoch_of_selectable_phases(mode, sign, tmp_path):
    keeper = RunCheckpoint(mode=mode)
    scores = [sign * score for score in (9.0, 1.0, 2.0, 2.0, 0.0, 9.0)]
    best, last = ["best.ckpt", "last.ckpt"], ["last.ckpt"]
    assert run(keeper, FakeTrainer(tmp_path), scores) == [last, best, best, last, last, last]
    assert keeper.best_score == sign * 2
    assert keeper.best_or_last(FakeTrainer(tmp_path)) == tmp_path / "checkpoints" / "best.ckpt"


def test_an_epoch_without_validation_is_never_the_best(tmp_path):
    keeper, trainer = RunCheckpoint(), FakeTrainer(tmp_path)
    assert run(keeper, trainer, [None] * 6) == [["last.ckpt"]] * 6
    assert keeper.best_or_last(trainer) == tmp_path / "checkpoints" / "last.ckpt"
    best, last = ["best.ckpt", "last.ckpt"], ["last.ckpt"]
    assert run(keeper, trainer, [1.0, 1.0, None, 2.0]) == [last, best, last, best]


@pytest.mark.parametrize(("change", "saved"), [("sanity_checking", ["last.ckpt"]), ("fast_dev_run", [])])
def test_a_sanity_check_is_no_validation_and_a_trial_run_saves_nothing(change, saved, tmp_path):
    keeper, trainer = RunCheckpoint(), FakeTrainer(tmp_path, **{change: True})
    keeper.on_train_start(trainer, MODULE)
    assert trainer.saved == saved
    assert run(keeper, trainer, [1.0, 1.0]) == [saved] * 2


def test_the_best_score_survives_a_resume(tmp_path):
    keeper, resumed = RunCheckpoint(), RunCheckpoint()
    run(keeper, FakeTrainer(tmp_path), [0.0, 0.7])
    resumed.load_state_dict(keeper.state_dict())
    trainer = FakeTrainer(tmp_path)
    assert run(resumed, trainer, [0.0, 0.6, 0.8])[1:] == [["last.ckpt"], ["best.ckpt", "last.ckpt"]]


@pytest.mark.parametrize(("step", "saved"), [(0, ["last.ckpt"]), (4, [])])
def test_a_fresh_run_is_saved_before_its_first_batch(step, saved, tmp_path):
    trainer = FakeTrainer(tmp_path, global_step=step)
    RunCheckpoint().on_train_start(trainer, MODULE)
    assert trainer.saved == saved


@pytest.mark.parametrize("monitor", ["train/loss", "general/accuracy", "accuracy", None])
def test_only_validation_keys_select(monitor):
    with pytest.raises(ValueError, match="Expected argument `monitor` to be a validation key"):
        RunCheckpoint(monitor)


def test_a_monitor_that_is_not_computed_is_refused_at_the_start(tmp_path):
    engine = Interpretability(validation_suite=["compactness/npr"], every_n_epochs=1)
    trainer = FakeTrainer(tmp_path, callbacks=[engine])
    for key, mode, other in (("val/general/f1", "max", "min"), ("val/compactness/npr", "min", "max")):
        RunCheckpoint(key, mode).setup(trainer, MODULE, "fit")
        with pytest.raises(ValueError, match=f"Expected argument `mode` to be '{mode}', .* but got '{other}'"):
            RunCheckpoint(key, other).setup(trainer, MODULE, "fit")
    keeper = RunCheckpoint("val/compactness/local_size")
    keeper.setup(trainer, MODULE, "test")
    with pytest.raises(ValueError, match=r"`monitor` to be one of .*'val/compactness/npr'\], but got 'val/comp"):
        keeper.setup(trainer, MODULE, "fit")


def test_a_monitor_that_does_not_apply_is_refused_in_the_first_epoch(tmp_path):
    keeper, trainer = RunCheckpoint(), FakeTrainer(tmp_path)
    trainer.callback_metrics = {"val/general/f1": torch.tensor(1.0)}
    keeper.on_validation_end(trainer, MODULE)
    with pytest.raises(ValueError, match=r"one of \['val/general/f1'\], but got .*, which is not app"):
        keeper.on_train_epoch_end(trainer, MODULE)
    assert trainer.saved == []


def test_the_best_score_of_another_run_is_forgotten(tmp_path):
    keeper = RunCheckpoint()
    keeper.load_state_dict({"best_score": 0.9})
    trainer = FakeTrainer(tmp_path, global_step=4)
    keeper.on_train_start(trainer, MODULE)
    assert keeper.best_score is None
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "best.ckpt").touch()
    keeper.load_state_dict({"best_score": 0.9})
    keeper.on_train_start(trainer, MODULE)
    assert keeper.best_score == 0.9


def test_an_undefined_score_is_never_the_best(tmp_path):
    keeper = RunCheckpoint()
    run(keeper, FakeTrainer(tmp_path), [0.0, float("nan"), 0.1])
    assert keeper.best_score == pytest.approx(0.1)


# -- what made the weights --------------------------------------------------------------------------------------------
LAST, PRUNE, SOLVE = (
    {"epochs": 2, "on_enter": on_enter, "on_exit": on_exit}
    for on_enter, on_exit in ((["project"], ["prune_tree"]), (["prune"], []), (["project", "fit_head"], []))
)


@pytest.mark.parametrize(
    ("name", "phases", "epochs", "pruned", "layer"),
    [
        ("ProtoPNet", {"last": SOLVE}, {"last": 1}, False, "solved"),  # inactive for want of a weight
        ("ProtoPNet", {"last": SOLVE}, {}, False, "trained"),  # before the first batch
        ("ProtoPNet", {"last": SOLVE, "prune": PRUNE}, {"last": 2, "prune": 1}, True, "trained"),
        ("ProtoPNet", {"prune": PRUNE, "last": SOLVE}, {"prune": 2, "last": 1}, True, "solved"),
        ("ProtoPNet", None, None, True, "trained"),  # before there was a record
        ("ProtoPool", None, None, False, "trained"),  # inactive for want of a slot
        ("ProtoTree", {"last": LAST}, {"last": 1}, False, None),
        ("ProtoTree", {"last": LAST}, {"last": 2}, True, None),
        ("ProtoTree", None, None, True, None),
    ],
)
def test_results_say_what_made_the_weights(name, phases, epochs, pruned, layer):
    record = phases and {"phases": phases, "epochs": epochs, "phase": [*phases, *epochs][-1], "complete": False}
    model = MODELS[name](num_classes=8, image_size=(32, 32))
    assert how_made(model, record)["pruned"] is False
    model.prototypes.active[1:] = False
    assert how_made(model, record) == {"pruned": pruned, "last_layer": layer}
