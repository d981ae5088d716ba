import math
from functools import partial
from typing import ClassVar

import pytest
import torch

from metrics import BalancedAccuracy
from metrics.functional import balanced_accuracy, wilson_interval
from tests.metrics.general.logits import DTYPES, HAND, LABELS, LOGITS, SINGLE, K, drawn, slow_per_class
from tests.metrics.tester import Case, MetricTests, nowhere_finite, updated

NAN = math.nan


def slow_recall(tp, fp, fn):
    return tp / (tp + fn) if tp + fn else NAN


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

    def test_interval_contains_the_value(self, case):
        summary = updated(case.build(), case.record).summary()
        assert summary["low"] < summary["value"] < summary["high"]


def test_hand_case():
    # the last column: no prediction
    assert table(LOGITS, LABELS).tolist() == [[0, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0]]
    assert table(LOGITS, LABELS).dtype == torch.int64
    # class 0 has no sample; classes 1 and 2: tp 1, fn 1
    summary = updated(BalancedAccuracy(3), HAND).summary()
    assert (summary["value"], summary["n"], summary["skipped"]) == (0.5, 2, 1)
    values = updated(BalancedAccuracy(3), HAND).values().tolist()
    assert values == pytest.approx([NAN, 0.5, 0.5], nan_ok=True)
    constant = {"logits": torch.zeros(3, 3), "labels": torch.arange(3)}
    assert updated(BalancedAccuracy(3), constant).compute() == pytest.approx(1 / 3)


def test_class_balanced_is_not_accuracy():
    # 3 of 4 right, but recalls 2/2, 1/1, 0/1
    logits = torch.tensor([[1.0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 0, 0]])
    metric = updated(BalancedAccuracy(3), {"logits": logits, "labels": torch.tensor([0, 0, 1, 2])})
    assert metric.compute() == pytest.approx(2 / 3)


def test_an_abstention_is_wrong_whatever_the_class():
    """Regression: the arg-max of a row of zeros is class 0, which would then be right."""
    logits, labels = torch.tensor([[0.0, 0, 0], [0, 0, 0], [0, 0, 0], [1, 0, 0]]), torch.tensor([0, 1, 2, 0])
    counts = table(logits, labels, 3, torch.tensor([True, True, True, False]))
    assert counts.tolist() == [[1, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 1]]
    assert balanced_accuracy(counts).tolist() == [0.5, 0, 0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_and_strides(dtype):
    for seed in range(4):
        data = drawn(seed, dtype)
        expected = slow_per_class(slow_recall, data)
        assert updated(BalancedAccuracy(5), data).compute().item() == pytest.approx(expected)


def test_relabelling_classes_moves_the_values():
    logits = torch.randn(9, 5, generator=torch.Generator().manual_seed(0))
    labels = drawn(0, torch.float32)["labels"]
    order = torch.randperm(5, generator=torch.Generator().manual_seed(2))
    moved = table(logits[:, order], order.argsort()[labels], 5)[:, :5]
    assert torch.equal(moved, table(logits, labels, 5)[:, :5][order][:, order])


def test_perfect_and_worst():
    right = torch.eye(4)
    assert balanced_accuracy(table(right, torch.arange(4), 4)).tolist() == [1] * 4
    assert balanced_accuracy(table(right.roll(1, dims=1), torch.arange(4), 4)).tolist() == [0] * 4


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_not_finite_is_left_out(bad):
    logits, labels = torch.cat([LOGITS, torch.tensor([[bad, 0, 0]])]), torch.cat([LABELS, torch.tensor([0])])
    assert torch.equal(table(logits, labels), table(LOGITS, LABELS))


def test_interval_over_the_images_of_each_class():
    # 8 of 8 and 0 of 2: effective number 4 / (1/8 + 1/2) = 6.4
    hits = {"logits": torch.tensor([[1.0, 0.0]] * 10), "labels": torch.tensor([0] * 8 + [1] * 2)}
    summary = updated(BalancedAccuracy(2), hits).summary()
    expected = wilson_interval(torch.tensor(3.2), torch.tensor(6.4))
    assert [summary["low"], summary["high"]] == pytest.approx([bound.item() for bound in expected], abs=1e-6)


def test_errors():
    for call, text in (
        (lambda: BalancedAccuracy(0), "`num_classes` to be at least 1, but got 0"),
        (lambda: table(LOGITS, LABELS, 4), "to have num_classes = 4 columns, but got 3"),
        (lambda: table(LOGITS[0], LABELS), "`logits` to be of shape"),
        (lambda: table(LOGITS, LABELS[:2]), "`labels` to be of shape"),
        (lambda: table(LOGITS, LABELS.int()), r"`labels` to be of shape .* dtype int64"),
    ):
        with pytest.raises(ValueError, match=text):
            call()
    for label in (-1, 3):
        with pytest.raises((RuntimeError, IndexError), match="out of bounds"):
            table(LOGITS, torch.full((4,), label))
