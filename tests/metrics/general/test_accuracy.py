import math
from functools import partial
from typing import ClassVar

import torch

from protometry.metrics import Accuracy, SubsetAccuracy
from protometry.metrics.functional import accuracy, subset_accuracy
from tests.metrics.general.logits import (
    LABELS,
    LOGITS,
    MULTI,
    MULTI_LABELS,
    MULTI_LOGITS,
    SINGLE,
    defined,
    slow_top_k,
)
from tests.metrics.tester import Case, MetricTests, mean, nowhere_finite, partly_unknown


def slow_subset(record, threshold=0.5):
    rows = [(row, label) for row, label in defined(record) if not all(map(math.isnan, label))]
    pairs = [zip(row, label, strict=True) for row, label in rows]
    return mean([float(all((o > threshold) == y or math.isnan(y) for o, y in pair)) for pair in pairs])


class TestEveryClass(MetricTests):
    cases: ClassVar = {
        "accuracy": Case(Accuracy, SINGLE, partial(slow_top_k, 1), nowhere_finite(SINGLE), 13),
        "subset_accuracy": Case(partial(SubsetAccuracy, threshold=0.5), MULTI, slow_subset, nowhere_finite(MULTI), 13),
        "subset_accuracy_unknown": Case(
            partial(SubsetAccuracy, threshold=0.5), partly_unknown(MULTI, "labels"), slow_subset,
            nowhere_finite(MULTI), 13,
        ),
    }  # fmt: skip


def test_hand_cases():
    assert accuracy(LOGITS, LABELS).tolist() == [0, 1, 1, 0]
    assert accuracy(torch.zeros(3, 3), torch.arange(3)).tolist() == [1, 0, 0]
    assert subset_accuracy(MULTI_LOGITS, MULTI_LABELS).tolist() == [1, 0, 1]
    # the threshold is strict: at 1 only the logit 2 remains, {2}, {}, {}
    assert subset_accuracy(MULTI_LOGITS, MULTI_LABELS, 1.0).tolist() == [0, 0, 0]
    nothing = torch.full((1, 3), math.nan)
    assert subset_accuracy(MULTI_LOGITS[:1], nothing).isnan().all()
    assert subset_accuracy(MULTI_LOGITS[1:2], nothing.where(torch.arange(3) == 1, 0.0)).isnan().tolist() == [False]


def test_an_abstention_is_wrong_whatever_the_class():
    """Regression: the arg-max of a row of zeros is class 0, which would then be right."""
    abstained = torch.tensor([True, True, True, False])
    logits = torch.tensor([[0.0, 0, 0], [0, 0, 0], [0, 0, 0], [1, 0, 0]])
    assert accuracy(logits, torch.tensor([0, 1, 2, 0]), abstained).tolist() == [0, 0, 0, 1]
