import torch

from protometry.metrics import Abstention
from tests.metrics.general.logits import SINGLE
from tests.metrics.tester import (
    check_attributes,
    check_collection,
    check_protocol,
    check_splits,
    check_two_processes,
    mean,
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
