import math

import pytest
import torch

from protometry.metrics import GlobalSize
from protometry.metrics.functional import global_size

WEIGHT = torch.tensor([[1.0, 0.0, -0.5, 0.0005], [0.0, 2.0, 0.0, 0.0]])
ALL = torch.ones(4, dtype=torch.bool)


def test_the_metric_reads_what_there_is():
    metric = GlobalSize()
    metric.update(None, torch.tensor([True, False, True]))  # without weights every active unit counts
    assert metric.compute() == 2
    metric.update(WEIGHT, ALL, presence=torch.tensor([[0, 1, 0, 0], [0, 1, 0, 0]]))
    assert metric.compute() == 1
    metric = GlobalSize(variant="quanproto")
    metric.update(WEIGHT, ALL)  # the third column is only negative
    assert metric.compute() == 2


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
def test_assigned_slots(dtype):
    # 50 prototypes in the pool, 10 classes with 2 slots that share prototypes 0..4
    presence = torch.zeros(10, 50, dtype=dtype)
    for index in range(10):
        presence[index, index % 5] = presence[index, (index + 1) % 5] = 1
    active = torch.ones(50, dtype=torch.bool)
    assert global_size(torch.randn(10, 50), active, presence) == 5
    assert global_size(None, active, presence) == 5
    assert global_size(None, active, presence, variant="quanproto") == 5
    active[0] = False
    assert global_size(None, active, presence) == 4


def test_raw_assignment_logits():
    logits = torch.randn(10, 50, generator=torch.Generator().manual_seed(0))
    active = torch.ones(50, dtype=torch.bool)
    assert global_size(None, active, logits, threshold=1e-6, variant="quanproto") == 50
    with pytest.raises(ValueError, match="`presence` to be a 0/1 assignment, but got other values; take the argmax"):
        global_size(None, active, logits)
    with pytest.raises(ValueError, match="`presence` to be finite"):
        global_size(None, active, logits * math.nan)
