"""The action that selects features: from all training images, whatever the batches and the number of processes."""

from __future__ import annotations

import torch

from tests.callbacks.phases.test_selection import BUFFERS, assert_same, selected


def selected_of_rank(rank, world_size):
    return selected()[:2]


def test_two_processes_equal_one(ddp_pool, whole):
    """Of 23 images one process has 12, the other 11."""
    first, second = ddp_pool.run(selected_of_rank)
    assert_same(first, whole)
    assert all(torch.equal(first[1][name], second[1][name]) for name in BUFFERS)
