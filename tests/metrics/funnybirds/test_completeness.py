"""The threshold that is chosen, and the scores at it."""

import math

import pytest
import torch

from protometry.metrics.functional import funnybirds_aggregate, heldout_completeness, part_thresholds, select_threshold
from tests.metrics.funnybirds.birds import draws
from tests.metrics.tester import NAN


def test_aggregates_by_hand():
    def scores(*values):
        tensors = [torch.tensor(value, dtype=torch.float64) for value in values]
        return funnybirds_aggregate(
            *(t[None] for t in tensors[:4]), *tensors[4:], torch.tensor([0.1], dtype=torch.float64)
        )

    small = scores(0.6, 0.3, 0.6, 0.8, 0.5, 0.5)
    assert (small["completeness"], small["completeness_mean"]) == (pytest.approx(0.65), pytest.approx(0.575))
    published = scores(0.7353, 0.602, 0.532, 0.54372, 0.54592, 0.806)  # ResNet-50, Hesse et al.
    assert (round(published["completeness"], 4), round(published["overall"], 4)) == (0.5834, 0.6451)
    assert (published["correctness"], published["contrastivity"], published["threshold"]) == (0.54592, 0.806, 0.1)
    nothing_correct = scores(NAN, 0.6, 0.5, 0.5, 0.5, 0.8)
    assert [name for name, value in nothing_correct.items() if value == value] == ["correctness", "contrastivity"]


def test_the_threshold():
    g = draws(3)
    csdc, pc, dc, d = torch.rand(4, 80, generator=g).double()
    total = [(a + b + c) / 3 + e for a, b, c, e in zip(*(x.tolist() for x in (csdc, pc, dc, d)), strict=True)]
    best = total.index(max(total))
    assert select_threshold(csdc, pc, dc, d) == best
    result = funnybirds_aggregate(csdc, pc, dc, d, torch.tensor(0.5), torch.tensor(0.7), part_thresholds())
    assert result["completeness"] == pytest.approx(total[best] / 2)
    assert result["completeness_area"] == pytest.approx(sum(total) / 160)
    assert result["threshold"] == part_thresholds()[best]
    # the first of equal ones, also of those that differ by rounding alone
    tied = torch.tensor([0.1, 0.3, 0.3 + 1e-15], dtype=torch.float64)
    assert select_threshold(tied, tied, tied, tied) == 1
    halves = torch.tensor([[0.2, 0.9, 0.1], [0.3, 0.6, 0.9]]).double()
    assert heldout_completeness(halves, halves, halves, halves) == pytest.approx(0.6)
    assert math.isnan(heldout_completeness(halves * NAN, halves, halves, halves))
    with pytest.raises(ValueError, match="1 of them with an undefined check"):
        select_threshold(*[torch.tensor([0.5, NAN])] * 4)
