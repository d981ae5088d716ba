"""How often the order of classes decides."""

import math

import torch

from protometry.metrics import Ties
from tests.metrics.general.logits import NAN, SINGLE
from tests.metrics.tester import (
    check_attributes,
    check_collection,
    check_protocol,
    check_splits,
    check_two_processes,
    mean,
    updated,
)

READ = {name: SINGLE[name] for name in ("logits", "abstained")}


def slow(record):
    """Undefined where a logit is not finite, no tie where the model abstains."""
    values = []
    for row, gone in zip(record["logits"].tolist(), record["abstained"].tolist(), strict=True):
        first, second, *_ = sorted(row, reverse=True)
        values.append(float(first == second and not gone) if all(map(math.isfinite, row)) else NAN)
    return mean(values)


def test_everywhere(ddp_pool):
    check_attributes(Ties())
    check_splits(Ties, READ, slow)
    check_protocol(Ties, READ)
    check_collection(Ties, READ)
    check_two_processes(ddp_pool, Ties, READ)
    assert updated(Ties(), {"logits": torch.zeros(4, 3)}).compute() == 1
