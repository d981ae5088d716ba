"""Parts that are important by their share of the attribution, or by what a region covers of them."""

import pytest
import torch

from protometry.metrics import ImportantParts
from protometry.metrics.functional import covered_parts, important_parts, part_importance, part_thresholds
from tests.metrics.funnybirds.birds import T, booleans, equal, scene, sets_of


def test_thresholds():
    equal(part_thresholds(80)[[0, 79]], [0.01, 0.5])


def test_important_parts_by_hand():
    importance = torch.tensor([[4.0, 1, 0, -1, 2]])
    assert sets_of(important_parts(importance, torch.tensor([10.0]), torch.tensor([0.05, 0.1]))[0]) == [
        {0, 1, 4},
        {0, 4},
    ]
    # a total of zero or less makes the rule permissive, the more so the higher the threshold
    assert sets_of(important_parts(importance, torch.tensor([0.0]), T)[0]) == [{0, 1, 4}] * 7
    assert sets_of(important_parts(importance, torch.tensor([-10.0]), T)[0][[0, -1]]) == [{0, 1, 2, 4}, {0, 1, 2, 3, 4}]


def test_covered_parts_by_hand():
    region, masks = torch.zeros(1, 4, 4, dtype=torch.bool), torch.zeros(1, 3, 4, 4, dtype=torch.bool)
    region[0, 0, 0] = masks[0, 0, :2] = True  # 1 of 8 pixels; instance 2 is hidden
    masks[0, 1, 3] = True
    for variant, expected in (("fixed", [{0}] + [set()] * 3), ("reference", [{0}] * 3 + [set()])):
        actual = covered_parts(region, masks, torch.tensor([[0, 1, 2]]), torch.tensor([0.1, 0.2, 0.3, 0.4]), 3, variant)
        assert sets_of(actual[0]) == expected


@pytest.mark.parametrize("seed", range(3))
def test_coverage_oracle_and_nestedness(seed):
    attribution, masks, part = scene(seed)
    region, thresholds = booleans(seed + 9, 5, 9, 7), part_thresholds()
    for variant, factor in (("fixed", 1), ("reference", 3)):
        actual = covered_parts(region, masks, part, thresholds, 3, variant)
        for b, (t, threshold) in ((b, pair) for b in range(5) for pair in enumerate(thresholds.tolist())):
            expected = {
                part[b, i].item()
                for i in range(4)
                if factor * (region[b] & masks[b, i]).sum() > threshold * masks[b, i].sum() and part[b, i] >= 0
            }
            assert sets_of(actual[b, t : t + 1]) == [expected]
        assert (actual[:, 1:] <= actual[:, :-1]).all()
    shares = important_parts(part_importance(attribution, masks, part, 3), attribution.sum((1, 2)), thresholds)
    positive = attribution.sum((1, 2)) > 0
    assert (shares[positive, 1:] <= shares[positive, :-1]).all()
    assert (shares[~positive, 1:] >= shares[~positive, :-1]).all()


def test_no_interval_ends_above_the_number_of_parts():
    metric, parts = ImportantParts(1), torch.ones(12, 1, 5, dtype=torch.bool)
    parts[:3, :, :2] = False
    metric.update(parts, torch.arange(12))
    summary = metric.summary(0)
    assert summary["low"] < summary["value"] == 4.5 < summary["high"] < 5  # 5.08 by Student's t


def test_no_image():
    _, masks, part = scene(0)
    assert covered_parts(masks[:0, 0], masks[:0], part[:0], T, 3).shape == (0, 7, 3)
