import math
from functools import partial

import pytest
import torch

from protometry.metrics import CalibrationError
from protometry.metrics.functional import confidence_bins
from tests.metrics.general.logits import SINGLE
from tests.metrics.tester import NAN, Case, MetricTests, nowhere_finite, updated


def slow_error(record, bins=15):
    gone = record.get("abstained", torch.zeros(len(record["labels"]), dtype=torch.bool)).tolist()
    pairs = []  # the largest probability, and whether its first class is right
    for row, label, out in zip(record["probabilities"].tolist(), record["labels"].tolist(), gone, strict=True):
        if all(map(math.isfinite, row)) and not out:
            pairs.append((max(row), row.index(max(row)) == label))
    error = 0.0
    for index in range(bins):
        inside = [(p, right) for p, right in pairs if min(int(p * bins), bins - 1) == index]
        if inside:
            accuracy, confidence = (sum(column) / len(inside) for column in zip(*inside, strict=True))
            error += len(inside) / len(pairs) * abs(accuracy - confidence)
    return error if pairs else NAN


RECORD = {
    "probabilities": SINGLE["logits"].softmax(dim=1),
    "labels": SINGLE["labels"],
    "abstained": SINGLE["abstained"],
}
DECIDED = {name: RECORD[name] for name in ("probabilities", "labels")}


class TestEveryClass(MetricTests):
    cases = {
        "fifteen": Case(CalibrationError, RECORD, slow_error, nowhere_finite(RECORD), 13),
        "three": Case(partial(CalibrationError, 3), DECIDED, partial(slow_error, bins=3), nowhere_finite(DECIDED), 13),
    }


def test_by_hand():
    likely, labels = torch.tensor([0.9, 0.7, 0.6, 1.0]), torch.tensor([0, 1, 1, 0])
    record = {"probabilities": torch.stack([likely, 1 - likely], dim=1), "labels": labels}
    # two bins: 1/2 is the end of the first; of all images, 2 - 3.2
    summary = updated(CalibrationError(2), record).summary()
    assert (summary["value"], summary["n"], summary["skipped"]) == (pytest.approx(1.2 / 4), 4, 0)
    assert math.isnan(summary["low"])
    # ten bins: .7 and .6 are alone and wrong; .9 and 1 share the last bin, 2 - 1.9
    assert updated(CalibrationError(10), record).compute().item() == pytest.approx((0.7 + 0.6 + 0.1) / 4)
    # silent on the third
    silent = record | {"abstained": torch.arange(4) == 2}
    summary = updated(CalibrationError(10), silent).summary()
    assert (summary["value"], summary["n"], summary["skipped"]) == (pytest.approx((0.7 + 0.1) / 3), 3, 1)


def test_ends():
    sure, labels = torch.eye(3), torch.arange(3)
    assert updated(CalibrationError(), {"probabilities": sure, "labels": labels}).compute() == 0
    assert updated(CalibrationError(), {"probabilities": sure, "labels": labels.roll(1)}).compute() == 1
    halves = torch.full((2, 2), 0.5)  # a tie: class 0, in the bin that starts there
    assert confidence_bins(halves, torch.arange(2), bins=2).tolist() == [[0, 2], [0, 1], [0, 1]]
