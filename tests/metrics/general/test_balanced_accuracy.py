from functools import partial
from typing import ClassVar

import pytest
import torch

from protometry.metrics import BalancedAccuracy
from protometry.metrics.functional import balanced_accuracy
from tests.metrics.general.logits import HAND, LABELS, LOGITS, SINGLE, K, slow_per_class, slow_recall
from tests.metrics.tester import NAN, Case, MetricTests, nowhere_finite, updated


def table(logits, labels, classes=3, abstained=None):
    """The confusion table without its last column, of images without a prediction."""
    metric = BalancedAccuracy(classes)
    metric.update(logits, labels, abstained)
    return metric.confusion


class TestBalancedAccuracy(MetricTests):
    cases: ClassVar = {
        "recall": Case(
            partial(BalancedAccuracy, K), SINGLE, partial(slow_per_class, slow_recall), nowhere_finite(SINGLE), 13 + K
        )
    }


def test_hand_case():
    # the last column: no prediction
    assert table(LOGITS, LABELS).tolist() == [[0, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0]]
    assert table(LOGITS, LABELS).dtype == torch.int64
    # class 0 has no sample; classes 1 and 2: tp 1, fn 1
    summary = updated(BalancedAccuracy(3), HAND).summary()
    assert (summary["value"], summary["n"], summary["skipped"], summary["without_images"]) == (0.5, 2, 1, 1)
    assert (
        "without_images"
        not in updated(BalancedAccuracy(3), {"logits": LOGITS, "labels": torch.arange(len(LOGITS)) % 3}).summary()
    )
    values = updated(BalancedAccuracy(3), HAND).values().tolist()
    assert values == pytest.approx([NAN, 0.5, 0.5], nan_ok=True)
    constant = {"logits": torch.zeros(3, 3), "labels": torch.arange(3)}
    assert updated(BalancedAccuracy(3), constant).compute() == pytest.approx(1 / 3)


def test_an_abstention_is_wrong_whatever_the_class():
    """Regression: the arg-max of a row of zeros is class 0, which would then be right."""
    logits, labels = torch.tensor([[0.0, 0, 0], [0, 0, 0], [0, 0, 0], [1, 0, 0]]), torch.tensor([0, 1, 2, 0])
    counts = table(logits, labels, 3, torch.tensor([True, True, True, False]))
    assert counts.tolist() == [[1, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 1]]
    assert balanced_accuracy(counts).tolist() == [0.5, 0, 0]
