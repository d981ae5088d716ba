"""Objects of the background that matter to the label."""

from typing import ClassVar

import torch

from protometry.metrics import BackgroundIndependence
from protometry.metrics.functional import background_independence
from tests.metrics.funnybirds.birds import booleans, equal, normal
from tests.metrics.tester import NAN, Case, MetricTests, nowhere_finite


def test_background_by_hand():
    drops = torch.tensor([[0.5, 0.1, -2], [9, 0, NAN], [NAN, 0, 0], [0, 0, 0]])
    valid = torch.tensor([[True] * 3, [True, True, False], [True, False, False], [False] * 3])
    independent, objects = background_independence(drops, torch.full((4,), 10.0), valid)
    equal(independent, [2, 1, NAN, 0])
    equal(objects, [3, 2, 1, 0])
    assert background_independence(drops, torch.full((4,), NAN), valid)[0].isnan().all()


def background_record():
    valid = booleans(1, 13, 4)
    valid[2] = False
    return {
        "background_drops": normal(2, 13, 4),
        "label_logits": normal(3, 13) * 10,
        "background_valid": valid,
    }


def slow_background(record):
    matters = objects = 0
    for drops, logit, valid in zip(*(value.tolist() for value in record.values()), strict=True):
        for drop in (drop for drop, there in zip(drops, valid, strict=True) if there):
            matters += drop > 0 and drop >= 0.05 * abs(logit)
            objects += 1
    return 1 - matters / objects if objects else NAN


class TestBackgroundIndependence(MetricTests):
    record = background_record()
    cases: ClassVar = {"bi": Case(BackgroundIndependence, record, slow_background, nowhere_finite(record), 13)}
