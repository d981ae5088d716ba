from functools import partial
from typing import ClassVar

import torch

from protometry.metrics import TopKAccuracy
from protometry.metrics.functional import top_k_accuracy
from tests.metrics.general.logits import LABELS, LOGITS, SINGLE, slow_top_k
from tests.metrics.tester import Case, MetricTests, nowhere_finite, updated


class TestTopKAccuracy(MetricTests):
    cases: ClassVar = {
        "k=2": Case(partial(TopKAccuracy, k=2), SINGLE, partial(slow_top_k, 2), nowhere_finite(SINGLE), 13)
    }

    def test_interval_contains_the_value(self, case):
        summary = updated(case.build(), case.record).summary()
        assert summary["low"] < summary["value"] < summary["high"]


def test_hand_cases():
    # the true class 2 of the last image has one better class, the true class 1 of the first too
    assert top_k_accuracy(LOGITS, LABELS, 2).tolist() == [1, 1, 1, 1]
    assert top_k_accuracy(torch.zeros(3, 3), torch.arange(3), 2).tolist() == [1, 1, 0]
    abstained = torch.tensor([True, True, True, False])
    logits = torch.tensor([[0.0, 0, 0], [0, 0, 0], [0, 0, 0], [1, 0, 0]])
    assert top_k_accuracy(logits, torch.tensor([0, 1, 2, 0]), 2, abstained).tolist() == [0, 0, 0, 1]
    assert top_k_accuracy(torch.zeros(0, 5), LABELS[:0]).shape == (0,)
