"""How often the order of classes decides."""

import math
from typing import ClassVar

import torch

from protometry.metrics import Ties
from tests.metrics.general.logits import SINGLE
from tests.metrics.tester import NAN, Case, MetricTests, mean, nowhere_finite, updated

READ = {name: SINGLE[name] for name in ("logits", "abstained")}


def slow(record):
    """Undefined where a logit is not finite, no tie where the model abstains."""
    values = []
    for row, gone in zip(record["logits"].tolist(), record["abstained"].tolist(), strict=True):
        first, second, *_ = sorted(row, reverse=True)
        values.append(float(first == second and not gone) if all(map(math.isfinite, row)) else NAN)
    return mean(values)


class TestTies(MetricTests):
    cases: ClassVar = {"ties": Case(Ties, READ, slow, nowhere_finite(READ), 13)}


def test_all_ties():
    assert updated(Ties(), {"logits": torch.zeros(4, 3)}).compute() == 1
