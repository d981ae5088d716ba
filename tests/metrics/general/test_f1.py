from functools import partial

import pytest
import torch

from protometry.metrics import F1Score, LabelF1Score
from protometry.metrics.functional import f1_score, label_f1_score
from tests.metrics.general.logits import (
    HAND,
    HAND_SETS,
    MULTI,
    MULTI_LOGITS,
    SINGLE,
    K,
    defined,
    slow_f1,
    slow_per_class,
)
from tests.metrics.tester import Case, MetricTests, mean, nowhere_finite, partly_unknown, updated


def slow_label_f1(record, threshold=0.5):
    pairs = defined(record)
    values = []
    for j in range(record["labels"].shape[1]):
        tp = sum(row[j] > threshold and label[j] == 1 for row, label in pairs)
        fp = sum(row[j] > threshold and label[j] == 0 for row, label in pairs)
        fn = sum(row[j] <= threshold and label[j] == 1 for row, label in pairs)
        values.append(slow_f1(tp, fp, fn))
    return mean(values)


LABEL_F1, UNKNOWN = partial(LabelF1Score, K, threshold=0.5), partly_unknown(MULTI, "labels")


class TestEveryClass(MetricTests):
    cases = {
        "f1": Case(partial(F1Score, K), SINGLE, partial(slow_per_class, slow_f1), nowhere_finite(SINGLE), 13 + K),
        "label_f1": Case(LABEL_F1, MULTI, slow_label_f1, nowhere_finite(MULTI), 13 + K),
        "label_f1_unknown": Case(LABEL_F1, UNKNOWN, slow_label_f1, nowhere_finite(MULTI), 13 + K),
    }


def test_hand_cases():
    # class 0 is predicted twice but never true: F1 0; classes 1 and 2: tp 1, fn 1
    metric = updated(F1Score(3), HAND)
    assert metric.values().tolist() == pytest.approx([0, 2 / 3, 2 / 3], abs=1e-12)
    assert (metric.summary()["value"], metric.summary()["n"]) == (pytest.approx(4 / 9, abs=1e-12), 3)
    assert metric.summary()["without_images"] == 1
    # label 2: tp 1, fp 1
    metric = updated(LabelF1Score(3), HAND_SETS)
    assert metric.counts.tolist() == [[2, 2, 1], [0, 0, 1], [0, 0, 0]]
    assert metric.values().tolist() == pytest.approx([1, 1, 2 / 3], abs=1e-12)
    assert metric.compute().item() == pytest.approx(8 / 9, abs=1e-12)
    assert "without_images" not in metric.summary()
    nobody = {"logits": MULTI_LOGITS, "labels": torch.zeros(3, 3, dtype=torch.bool)}
    assert updated(LabelF1Score(3), nobody).summary()["without_images"] == 3
    # the threshold is strict: at 1 only the logit 2 remains, {2}, {}, {}
    assert updated(LabelF1Score(3, 1.0), HAND_SETS).counts.tolist() == [[0, 0, 1], [0, 0, 0], [2, 2, 0]]


def test_ends():
    counts = torch.eye(4).long()
    assert (f1_score(counts).tolist(), f1_score(counts.roll(1, dims=1)).tolist()) == ([1] * 4, [0] * 4)
    assert f1_score(0 * counts).isnan().all()
    assert label_f1_score(*torch.zeros(3, 3).long()).isnan().all()  # labels nobody has
