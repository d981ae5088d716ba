from functools import partial

import pytest
import torch

from metrics import Abstention, Accuracy, BalancedAccuracy, F1Score, TopKAccuracy
from tests.metrics.general.logits import SINGLE, K, mean
from tests.metrics.tester import (
    check_attributes,
    check_collection,
    check_protocol,
    check_splits,
    check_two_processes,
    updated,
)

ABSTAINED = {"abstained": SINGLE["abstained"]}


def test_everywhere(ddp_pool):
    """Three of thirteen, in batches, in any order and on two processes."""
    check_attributes(Abstention())
    check_splits(Abstention, ABSTAINED, lambda record: mean(record["abstained"].double().tolist()))
    check_protocol(Abstention, ABSTAINED)
    check_collection(Abstention, ABSTAINED)
    check_two_processes(ddp_pool, Abstention, ABSTAINED)
    assert updated(Abstention(), ABSTAINED).compute() == 3 / 13
    assert updated(Abstention(), {"abstained": torch.zeros(4, dtype=torch.bool)}).compute() == 0


@pytest.mark.parametrize("build", [Accuracy, TopKAccuracy, partial(BalancedAccuracy, K), partial(F1Score, K)])
def test_no_abstention_is_the_default(build):
    never = SINGLE | {"abstained": torch.zeros(13, dtype=torch.bool)}
    plain = {name: SINGLE[name] for name in ("logits", "labels")}
    assert updated(build(), never).summary() == updated(build(), plain).summary()
