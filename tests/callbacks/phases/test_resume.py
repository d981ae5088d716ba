"""A run that is killed anywhere and resumed ends as one that was not, bit for bit."""

from __future__ import annotations

import contextlib
from functools import cache, partial

import pytest
import torch

from protometry.callbacks import Interpretability, RunCheckpoint, state_hash
from protometry.lightning_modules import QPM, Classifier, PIPNet, ProtoPNet, ProtoPool
from tests.callbacks.phases.test_phase_schedule import CYCLED, PHASES, STEPS, make
from tests.lightning_modules.registry import tiny_birds, tiny_trainer
from tests.tiny_runs import StopAt, StopError, differences

PIPNET = {  # of preset "original": pretrained, then one stage of four phases with one schedule
    "pretrain": {"epochs": 2}, "head": {"epochs": 1}, "partial": {"epochs": 2}, "full": {"epochs": 1},
    "full_from_30": None,
}  # fmt: skip
POOL = {"num_prototypes": 12, "slots_per_class": 2, "prototype_channels": 8, "gumbel_epochs": 4}
SPARSE = {"num_features": 12, "features_per_class": 3, "phases": {n: {"epochs": 2} for n in ("dense", "finetune")}}
HARDENED = {name: {"epochs": 2} for name in ("warm", "joint", "last")}


class Noisy(ProtoPNet):
    """Draws from the global generator in every training forward."""

    def __init__(self, **options):
        super().__init__(prototypes_per_class=2, prototype_channels=8, **options)

    def forward(self, images):
        return super().forward(images + 0.1 * torch.randn_like(images) if self.training else images)


def test_random_numbers_depend_on_seed_and_step_only():
    hashes = []
    for schedule_seed, global_seed in ((0, 1), (0, 2), (1, 1)):
        model, trainer = make(Noisy), tiny_trainer(max_epochs=2)
        trainer.callbacks[0].seed = schedule_seed
        torch.manual_seed(global_seed)
        trainer.fit(model, datamodule=tiny_birds())
        hashes.append(state_hash(model))
    assert hashes[0] == hashes[1] != hashes[2]


PLANS = {
    "per epoch": partial(make, Noisy, phases=PHASES),
    "per step": partial(make, Noisy, phases=CYCLED),
    "two views": partial(make, PIPNet, phases=PIPNET, num_features=8),
    "shared": partial(make, ProtoPool, phases=HARDENED, **POOL),
    "selected": partial(make, QPM, **SPARSE),
    "one phase": partial(make, Classifier, preset="sketch", phases={"train": {"epochs": 2}}),
}


def run(folder, plan, ckpt_path=None, kill=None, **options):
    """One process's life; returns the checkpoint it leaves."""
    model = PLANS[plan]()
    callbacks = [Interpretability(), RunCheckpoint(), *([StopAt(kill, "on_train_batch_end")] if kill else [])]
    trainer = tiny_trainer(*callbacks, default_root_dir=folder, limit_val_batches=0, **options)
    with contextlib.suppress(StopError):
        trainer.fit(model, datamodule=tiny_birds(), ckpt_path=ckpt_path)
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """What a run that is not cut leaves, by plan."""
    return cache(lambda plan: run(tmp_path_factory.mktemp(plan), plan))


def assert_ends_the_same(folder, whole, plan, cut):
    """Weights, buffers, sources, optimiser, schedule and the schedule's own state, bit for bit."""
    assert run(folder, plan, **cut)["epoch"] < whole["epoch"]
    resumed = run(folder, plan, ckpt_path=folder / "checkpoints" / "last.ckpt")
    for part in ("epoch", "global_step", "state_dict", "optimizer_states", "lr_schedulers", "callbacks"):
        assert differences(resumed[part], whole[part]) == []


@pytest.mark.parametrize(("plan", "cut"), [  # others: tests/slow
    ("per epoch", {"max_epochs": 4}),  # before the joint optimiser returns
    ("per epoch", {"kill": 4 * STEPS}),  # after a projection, before its epoch is saved
    ("per step", {"kill": 4 * STEPS + 1}),
    ("two views", {"max_epochs": 4}),  # within a phase, and within the stage
], ids=str)  # fmt: skip
def test_a_resumed_run_ends_as_one_that_was_not_cut(tmp_path, straight, plan, cut):
    assert_ends_the_same(tmp_path, straight(plan), plan, cut)


def test_a_checkpoint_knows_its_place(straight):
    state = straight("per epoch")["callbacks"]["PhaseSchedule"]
    assert (state["index"], state["entered"]) == (5, True)
    assert state["parked"] == {}  # no later phase needs the joint optimiser


def test_an_optimiser_that_has_returned_is_no_longer_parked(tmp_path):
    """Or a resumed run would store the state with which it returned, and one that was not cut the present one."""
    state = run(tmp_path, "per epoch", max_epochs=5)["callbacks"]["PhaseSchedule"]
    assert (state["index"], state["parked"]) == (3, {})
