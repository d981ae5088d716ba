"""What all metrics of single-label classification have in common."""

import math
from functools import partial

import pytest
import torch

from protometry.metrics import Accuracy, BalancedAccuracy, F1Score, TopKAccuracy
from protometry.metrics.functional import wilson_interval
from tests.metrics.general.logits import (
    DTYPES,
    HAND,
    LABELS,
    LOGITS,
    drawn,
    slow_f1,
    slow_per_class,
    slow_recall,
    slow_top_k,
)
from tests.metrics.tester import rows, updated

METRICS = {
    "accuracy": (lambda classes: Accuracy(), partial(slow_top_k, 1)),
    **{f"top{k}": (lambda classes, k=k: TopKAccuracy(k), partial(slow_top_k, k)) for k in (1, 2)},
    "balanced_accuracy": (BalancedAccuracy, partial(slow_per_class, slow_recall)),
    "f1": (F1Score, partial(slow_per_class, slow_f1)),
}
each = pytest.mark.parametrize("build", [build for build, _ in METRICS.values()], ids=METRICS)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("build", "oracle"), METRICS.values(), ids=METRICS)
def test_dtypes_and_strides(build, oracle, dtype):
    for seed in range(4):
        data = drawn(seed, dtype)
        assert updated(build(5), data).compute().item() == pytest.approx(oracle(data), abs=1e-12)
        for image in range(9):
            one = rows(data, slice(image, image + 1))
            assert updated(build(5), one).compute().item() == pytest.approx(oracle(one), abs=1e-12)


@each
def test_no_abstention_is_the_default(build):
    never = HAND | {"abstained": torch.zeros(4, dtype=torch.bool)}
    expected = updated(build(3), HAND).summary()
    assert updated(build(3), never).summary() == pytest.approx(expected, rel=0, abs=0, nan_ok=True)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@each
def test_not_finite_is_left_out_and_counted(build, bad):
    more = {"logits": torch.cat([LOGITS, torch.tensor([[bad, 0, 0]])]), "labels": torch.cat([LABELS, LABELS[:1]])}
    plain, summary = updated(build(3), HAND).summary(), updated(build(3), more).summary()
    assert summary == pytest.approx(plain | {"skipped": plain["skipped"] + 1}, rel=0, abs=0, nan_ok=True)


def test_intervals_of_wilson():
    # 8 of 8 and 0 of 2, over all images; and over those of each class: effective number 4 / (1/8 + 1/2) = 6.4
    hits = {"logits": torch.tensor([[1.0, 0.0]] * 10), "labels": torch.tensor([0] * 8 + [1] * 2)}
    summary = updated(Accuracy(), hits).summary()
    assert [summary["low"], summary["high"]] == pytest.approx([0.4902, 0.9433], abs=5e-5)
    for metric, value in ((F1Score(2), 4 / 9), (BalancedAccuracy(2), 1 / 2)):
        summary = updated(metric, hits).summary()
        expected = wilson_interval(torch.tensor(6.4 * value), torch.tensor(6.4))
        assert [summary["low"], summary["high"]] == pytest.approx([bound.item() for bound in expected], abs=1e-6)


@each
@pytest.mark.parametrize("label", [-1, 3])
def test_labels_that_are_no_class(build, label):
    with pytest.raises(ValueError, match="`labels` to hold values from 0 to 2"):
        build(3).update(LOGITS, torch.full((4,), label))
