from functools import partial
from typing import ClassVar

import torch

from protometry.metrics import TopKAccuracy
from protometry.metrics.functional import top_k_accuracy
from tests.metrics.general.logits import LABELS, LOGITS, SINGLE, slow_top_k
from tests.metrics.tester import Case, MetricTests, nowhere_finite


class TestTopKAccuracy(MetricTests):
    cases: ClassVar = {
        "k=2": Case(partial(TopKAccuracy, k=2), SINGLE, partial(slow_top_k, 2), nowhere_finite(SINGLE), 13)
    }


def test_hand_cases():
    # the true class 2 of the last image has one better class, the true class 1 of the first too
    assert top_k_accuracy(LOGITS, LABELS, 2).tolist() == [1, 1, 1, 1]
    assert top_k_accuracy(torch.zeros(3, 3), torch.arange(3), 2).tolist() == [1, 1, 0]
    assert top_k_accuracy(torch.zeros(0, 5), LABELS[:0]).shape == (0,)
