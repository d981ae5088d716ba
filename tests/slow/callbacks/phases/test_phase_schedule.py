"""The schedule walks a plan inside one fit: what is trained, with which optimiser, in which order."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from protometry.callbacks.phases.ranks import assert_equal_over_ranks, broadcast_buffers
from protometry.datamodules import SketchBirds


def broadcast_and_compare(rank, world_size):
    module = nn.BatchNorm1d(2)
    module.device = torch.device("cpu")
    module.running_mean.fill_(rank + 1.0)
    module.register_buffer("flags", torch.tensor([rank == 0]))
    try:
        assert_equal_over_ranks(module, "joint")
        before = "equal"
    except RuntimeError as error:
        before = str(error)
    broadcast_buffers(module)
    assert_equal_over_ranks(module, "joint")
    return before, module.running_mean, module.flags


def test_ranks_are_compared_and_buffers_are_those_of_rank_zero(ddp_pool):
    for before, mean, flags in ddp_pool.run(broadcast_and_compare):
        assert "different parameters or buffers at the start of phase 'joint'" in before
        assert mean.tolist() == [1.0, 1.0]
        assert flags.tolist() == [True]


def compare_data(rank, world_size):
    same, other = SketchBirds("tiny"), SketchBirds("tiny", train_size=16 + 8 * rank)
    same.check_processes("projection", "val")
    with pytest.raises(ValueError, match="Expected the same classes and images") as raised:
        other.check_processes("projection", "val")
    return str(raised.value), other.fingerprint_of("projection", "val")


def test_processes_with_different_data_are_refused(ddp_pool):
    (first, one), (second, two) = ddp_pool.run(compare_data)
    assert first == second
    assert f"on all processes, but the fingerprints of SketchBirds, by rank, are {one}, {two}. Give all" in first
