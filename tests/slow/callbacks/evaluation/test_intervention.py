"""Corrections within an evaluation: by the definition, image by image, and whatever the batches and processes."""

import math

import pytest
import torch

from protometry.callbacks import Interpretability
from tests.callbacks.evaluation.test_intervention import SUITE, built
from tests.engine_runs import run_engine, values
from tests.lightning_modules.registry import tiny_birds


def evaluated(batch_size=16, **options):
    return run_engine(Interpretability(SUITE), built(), tiny_birds(test_size=15), batch_size=batch_size, **options)


def evaluated_in_a_process(rank, world_size):
    torch.set_num_threads(1)
    return evaluated(3, rank=rank, world_size=world_size)


@pytest.fixture(scope="module")
def reference():
    return evaluated()


def test_batches_and_processes_change_nothing(reference, ddp_pool):
    for evaluation in (evaluated(4), *ddp_pool.run(evaluated_in_a_process)):
        assert evaluation.metrics.keys() == reference.metrics.keys()
        for key, figures in values(reference).items():
            assert values(evaluation)[key] == pytest.approx(figures, abs=1e-12, nan_ok=True), key
        assert evaluation.metrics["intervention/area"]["curve"] == reference.metrics["intervention/area"]["curve"]
    assert all(math.isfinite(entry["value"]) for entry in reference.metrics.values())
