"""Accuracies of classes and of label sets, and what is no answer."""

import math
from functools import partial

import pytest
import torch

from protometry.metrics import Abstention, Accuracy, BalancedAccuracy, SubsetAccuracy, Ties, TopKAccuracy
from protometry.metrics.functional import accuracy, balanced_accuracy, subset_accuracy, top_k_accuracy
from tests.metrics.general.logits import (
    HAND,
    LABELS,
    LOGITS,
    MULTI,
    MULTI_LABELS,
    MULTI_LOGITS,
    SINGLE,
    K,
    defined,
    slow_per_class,
    slow_recall,
    slow_top_k,
)
from tests.metrics.tester import NAN, Case, MetricTests, mean, nowhere_finite, partly_unknown, updated


def slow_subset(record, threshold=0.5):
    rows = [(row, label) for row, label in defined(record) if not all(map(math.isnan, label))]
    pairs = [zip(row, label, strict=True) for row, label in rows]
    return mean([float(all((o > threshold) == y or math.isnan(y) for o, y in pair)) for pair in pairs])


def table(logits, labels, classes=3, abstained=None):
    """The confusion table without its last column, of images without a prediction."""
    metric = BalancedAccuracy(classes)
    metric.update(logits, labels, abstained)
    return metric.confusion


READ = {name: SINGLE[name] for name in ("logits", "abstained")}


def slow_ties(record):
    """Undefined where a logit is not finite, no tie where the model abstains."""
    values = []
    for row, gone in zip(record["logits"].tolist(), record["abstained"].tolist(), strict=True):
        first, second, *_ = sorted(row, reverse=True)
        values.append(float(first == second and not gone) if all(map(math.isfinite, row)) else NAN)
    return mean(values)


NOWHERE, RECALL = nowhere_finite(SINGLE), partial(slow_per_class, slow_recall)
SETS, UNKNOWN = partial(SubsetAccuracy, threshold=0.5), partly_unknown(MULTI, "labels")


class TestEveryClass(MetricTests):
    cases = {
        "accuracy": Case(Accuracy, SINGLE, partial(slow_top_k, 1), NOWHERE, 13),
        "top2_accuracy": Case(partial(TopKAccuracy, k=2), SINGLE, partial(slow_top_k, 2), NOWHERE, 13),
        "balanced_accuracy": Case(partial(BalancedAccuracy, K), SINGLE, RECALL, NOWHERE, 13 + K),
        "ties": Case(Ties, READ, slow_ties, nowhere_finite(READ), 13),
        "subset_accuracy": Case(SETS, MULTI, slow_subset, nowhere_finite(MULTI), 13),
        "subset_accuracy_unknown": Case(SETS, UNKNOWN, slow_subset, nowhere_finite(MULTI), 13),
    }


def test_accuracy_hand_cases():
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
    abstained, labels = torch.tensor([True, True, True, False]), torch.tensor([0, 1, 2, 0])
    logits = torch.tensor([[0.0, 0, 0], [0, 0, 0], [0, 0, 0], [1, 0, 0]])
    assert accuracy(logits, labels, abstained).tolist() == [0, 0, 0, 1]
    counts = table(logits, labels, 3, abstained)
    assert counts.tolist() == [[1, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 1]]
    assert balanced_accuracy(counts).tolist() == [0.5, 0, 0]


def test_top_k_hand_cases():
    # the true class 2 of the last image has one better class, the true class 1 of the first too
    assert top_k_accuracy(LOGITS, LABELS, 2).tolist() == [1, 1, 1, 1]
    assert top_k_accuracy(torch.zeros(3, 3), torch.arange(3), 2).tolist() == [1, 1, 0]
    assert top_k_accuracy(torch.zeros(0, 5), LABELS[:0]).shape == (0,)


def test_balanced_accuracy_by_hand():
    # the last column: no prediction
    assert table(LOGITS, LABELS).tolist() == [[0, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0]]
    assert table(LOGITS, LABELS).dtype == torch.int64
    # class 0 has no sample; classes 1 and 2: tp 1, fn 1
    summary = updated(BalancedAccuracy(3), HAND).summary()
    assert (summary["value"], summary["n"], summary["skipped"], summary["without_images"]) == (0.5, 2, 1, 1)
    every_class = {"logits": LOGITS, "labels": torch.arange(len(LOGITS)) % 3}
    assert "without_images" not in updated(BalancedAccuracy(3), every_class).summary()
    values = updated(BalancedAccuracy(3), HAND).values().tolist()
    assert values == pytest.approx([NAN, 0.5, 0.5], nan_ok=True)
    constant = {"logits": torch.zeros(3, 3), "labels": torch.arange(3)}
    assert updated(BalancedAccuracy(3), constant).compute() == pytest.approx(1 / 3)


def test_all_ties():
    assert updated(Ties(), {"logits": torch.zeros(4, 3)}).compute() == 1


ABSTAINED = {"abstained": SINGLE["abstained"]}  # three of thirteen


class TestAbstention(MetricTests):
    cases = {"abstention": Case(Abstention, ABSTAINED, lambda data: mean(data["abstained"].double().tolist()), {}, 0)}

    def test_undefined(self, case):
        """Every image has an answer: only without images there is none."""
        metric = case.build()
        metric.update(ABSTAINED["abstained"][:0])
        with pytest.warns(UserWarning, match="nothing it could measure among 0 entries"):
            assert metric.compute().isnan()
