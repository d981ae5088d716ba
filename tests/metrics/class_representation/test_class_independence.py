import math
from functools import partial

import pytest
import torch

from protometry.metrics import ClassIndependence
from protometry.metrics.functional import class_independence
from tests.metrics.class_representation.scores import LABELS, USED, drawn, planted, scores
from tests.metrics.tester import NAN, Case, MetricTests, mean, nowhere_finite, updated


def slow_independence(column, labels):
    shifted = [x - min(column) for x in column]
    if not all(map(math.isfinite, column)) or sum(shifted) == 0:
        return NAN
    sums = [sum(x for x, y in zip(shifted, labels, strict=True) if y == label) for label in set(labels)]
    return 1 - max(sums) / sum(shifted)


def slow(data):
    columns = data["scores"].double().T[USED].tolist()
    return mean([slow_independence(column, data["labels"].tolist()) for column in columns])


class TestClassIndependence(MetricTests):
    data = {"scores": scores(), "labels": LABELS}
    cases = {"class_independence": Case(partial(ClassIndependence, 5, 3, USED), data, slow, nowhere_finite(data), 5)}


def test_hand_cases_and_slow_oracle():
    hand = torch.tensor([[1.0, 0], [3, 0], [2, 5], [1, 6]])  # 0, 2 | 1, 0, and a detector of class 1
    assert class_independence(hand, torch.tensor([0, 0, 1, 1]), 2).tolist() == pytest.approx([1 / 3, 0])
    scores, labels = drawn(2, 30, 5), torch.arange(30) % 4
    scores[:, 1], scores[3, 2] = 0.1, NAN
    expected = [slow_independence(column, labels.tolist()) for column in scores.double().T.tolist()]
    values = class_independence(scores, labels, 6)  # two classes without images
    assert values.tolist() == pytest.approx(expected, nan_ok=True)
    assert values[[1, 2]].isnan().all()
    torch.testing.assert_close(class_independence(3 * scores.double() - 8, labels, 6), values, equal_nan=True)
    everywhere = torch.tensor([[1.0], [0.0]] * 4)  # each class alike: 1 - 1/K
    assert class_independence(everywhere, torch.arange(4).repeat_interleave(2), 4).item() == 0.75
    assert class_independence(scores[:0], labels[:0], 4).isnan().all()


def test_planted_truth():
    """Features that half of the classes share, noise, and class detectors."""
    labels, present, noise, detectors = planted()
    general = [
        updated(ClassIndependence(s.shape[1], 20), {"scores": s, "labels": labels}).compute()
        for s in (noise, present, detectors)
    ]
    assert 0.95 >= general[0] > 0.93
    assert 0.92 > general[1] > 0.88  # 1 of the 10 classes that share it
    assert general[2] < 0.1
