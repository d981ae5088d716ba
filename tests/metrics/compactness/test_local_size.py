import math
from functools import partial
from typing import ClassVar

import torch

from protometry.metrics import LocalSize
from protometry.metrics.functional import local_size
from tests.metrics.tester import NAN, Case, MetricTests, updated

ACTIVE = torch.tensor([True, True, False, True, True])


def record():
    scores = torch.randn(13, 5, generator=torch.Generator().manual_seed(2))
    scores[3], scores[7, 0], scores[8, 2] = -1, NAN, NAN
    return {"scores": scores}


def slow_size(row, active, threshold):
    chosen = [score for score, is_active in zip(row, active, strict=True) if is_active]
    if not chosen or not all(map(math.isfinite, chosen)) or max(chosen) <= 0:
        return NAN
    return sum(score / max(chosen) > threshold for score in chosen)


def slow(data):
    sizes = [slow_size(row, ACTIVE.tolist(), 0.1) for row in data["scores"].tolist()]
    sizes = [size for size in sizes if not math.isnan(size)]
    return sum(sizes) / len(sizes) if sizes else NAN


class TestLocalSize(MetricTests):
    cases: ClassVar = {
        "local_size": Case(
            partial(LocalSize, ACTIVE), record(), slow, {"scores": -record()["scores"].nan_to_num().abs()}, 13
        )
    }

    def test_hand_case(self):
        # shares 1, .5, .15, .095 and one score alone: counts 3 and 1, and an image without a positive score
        metric = LocalSize()
        metric.update(torch.tensor([[2.0, 1.0, 0.3, 0.19], [1.0, 0.0, 0.0, 0.0], [-1.0, -1.0, -1.0, 0.0]]))
        summary = metric.summary()
        assert (summary["value"], summary["n"], summary["skipped"]) == (2, 2, 1)
        assert updated(LocalSize(threshold=0.4), {"scores": torch.tensor([[2.0, 1.0, 0.3]])}).compute() == 2


def test_strict_in_float64():
    # float32 0.1 is 0.100000001490116 in float64 and passes; float64 0.1 does not
    assert local_size(torch.tensor([[1.0, 0.1]])).tolist() == [2]
    assert local_size(torch.tensor([[1.0, 0.1]], dtype=torch.float64)).tolist() == [1]
