"""ProtoTree exported, resumed, and in two processes."""

from __future__ import annotations

import pytest
import torch

from tests.lightning_modules.registry import tiny_birds
from tests.lightning_modules.test_prototree import (
    MODES,
    PLAN,
    STEPS,
    assert_same_end,
    close,
    fit,
    grown,
    images,
    make,
    run,
)
from tests.tiny_runs import as_launched


@pytest.mark.parametrize("inference", MODES[1:])
def test_an_export_keeps_the_inference(inference):
    model = grown(inference=inference).eval()
    program = torch.export.export(model, (images(),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    model.inference = "distributed"
    logits = program.module()(images(7)).logits
    assert not torch.equal(logits, model(images(7)).logits)
    model.inference = inference
    assert torch.equal(logits, model(images(7)).logits)


def leaves_of_a_run(rank, world_size, batch_size):
    """Frozen BatchNorm: the steps of two processes are then those of one with twice the batch."""
    torch.set_num_threads(1)
    phases = {name: change | {"bn": "eval"} for name, change in PLAN.items()}
    model = make(num_classes=8, phases=phases | {"warm": None, "joint": {"epochs": 2, "bn": "eval", "on_enter": []}})
    options = {"devices": world_size, "strategy": "ddp"} if world_size > 1 else {}
    with as_launched(rank, world_size) if world_size > 1 else torch.enable_grad():
        fit(model, data=tiny_birds(batch_size=batch_size), max_epochs=2, **options)
    return model.tree.leaf_logits, model.tree.epoch_leaf_logits, model.prototypes.vectors.detach()


def test_two_processes_learn_the_leaves_of_one(ddp_pool):
    one = leaves_of_a_run(0, 1, 8)
    first, second = ddp_pool.run(leaves_of_a_run, 4)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    for name, shared, alone in zip(("leaves", "start", "vectors"), first, one, strict=True):
        close(shared, alone, rtol=1e-3, atol=1e-3, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("kill", [2, 4 * STEPS])
def test_a_resumed_run_ends_as_one_that_was_not_cut(tmp_path, kill):
    assert_same_end(tmp_path / "cut", run(tmp_path / "straight"), {"kill": kill})
