"""What all metrics of single-label classification have in common."""

import math

import pytest
import torch

from protometry.metrics import Accuracy, BalancedAccuracy, F1Score, TopKAccuracy
from protometry.metrics.functional import wilson_interval
from tests.metrics.general.logits import (
    HAND,
    LABELS,
    LOGITS,
)
from tests.metrics.tester import updated

BUILDS = {
    "accuracy": lambda classes: Accuracy(),
    "top2": lambda classes: TopKAccuracy(2),
    "balanced_accuracy": BalancedAccuracy,
    "f1": F1Score,
}
each = pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)


@each
def test_no_abstention_is_the_default(build):
    never = HAND | {"abstained": torch.zeros(4, dtype=torch.bool)}
    expected = updated(build(3), HAND).summary()
    assert updated(build(3), never).summary() == pytest.approx(expected, rel=0, abs=0, nan_ok=True)


@each
def test_not_finite_is_left_out_and_counted(build):
    more = {"logits": torch.cat([LOGITS, torch.tensor([[math.nan, 0, 0]])]), "labels": torch.cat([LABELS, LABELS[:1]])}
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
