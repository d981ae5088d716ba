"""The pool of two processes itself: it runs together, and fails loudly."""

from __future__ import annotations

import os
import time

import pytest
import torch

from tests.ddp_pool import DdpPool, DdpPoolError


def rank_sum(rank, world_size, values):
    total = values[rank::world_size].sum()
    torch.distributed.all_reduce(total)
    return rank, total, torch.get_num_threads()


def fail_on_rank_one(rank, world_size):
    if rank == 1:
        raise KeyError("the reason")
    return rank


def die_on_rank_one(rank, world_size):
    if rank == 1:
        os._exit(3)
    return rank


def hang_on_rank_one(rank, world_size):
    if rank == 1:
        time.sleep(600)
    return rank


def test_both_processes_run_and_communicate(ddp_pool):
    results = ddp_pool.run(rank_sum, torch.arange(5.0))
    assert results == [(0, 10.0, 1), (1, 10.0, 1)]


def test_functions_must_be_at_module_level(ddp_pool):
    def local(rank, world_size):
        return rank

    with pytest.raises(ValueError, match="to be defined at module level, but got"):
        ddp_pool.run(local)
    with pytest.raises(ValueError, match="to be defined at module level, but got"):
        ddp_pool.run(lambda rank, world_size: rank)


@pytest.mark.slow
@pytest.mark.ddp
def test_failures_are_loud_and_the_pool_recovers(tmp_path):
    pool = DdpPool(tmp_path, timeout=2)
    try:
        with pytest.raises(DdpPoolError, match=r"(?s)Process 1 raised while running fail_on_rank_one.*the reason"):
            pool.run(fail_on_rank_one)
        with pytest.raises(DdpPoolError, match=r"Process 1 died with exit code 3 running die_on_rank_one"):
            pool.run(die_on_rank_one)
        with pytest.raises(DdpPoolError, match=r"No answer within 2 s from process \[1\] running hang_on_rank_one"):
            pool.run(hang_on_rank_one)
        pool.timeout = 60
        assert [answer[1] for answer in pool.run(rank_sum, torch.arange(5.0))] == [10, 10]
    finally:
        pool.close()
