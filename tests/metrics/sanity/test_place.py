"""What a unit keeps of its score, and how much of a map lies in a box, and the lift of both over the control."""

import pytest
import torch

from protometry.metrics import CellAlone, GradientInside
from tests.metrics.tester import NAN, Case, MetricTests, mean, nowhere_finite, updated


def scores(seed):
    """Of two units of eleven images, some not positive or not finite."""
    values = 2 * torch.rand(11, 2, generator=torch.Generator().manual_seed(seed)) - 0.3
    values[1, 0], values[2, 1], values[3, 0], values[4] = 0, torch.inf, NAN, NAN
    return values.roll(seed, dims=0)


def slow_kept(whole, part):
    defined = whole > 0 and all(torch.tensor([whole, part]).isfinite())
    return min(max(part, 0) / whole, 1) if defined else NAN


def maps():
    """Of two units of eleven images: one that is 0, one that is not finite, empty slots."""
    values = torch.rand(11, 2, 5, 7, generator=torch.Generator().manual_seed(0))
    values[1, 0], values[2, 1, 0, 0], values[3, 0, 4, 6], values[4] = 0, torch.inf, NAN, NAN
    return values


def boxes(seed):
    generator = torch.Generator().manual_seed(seed)
    ends = [torch.randint(size, (11, 2, 2), generator=generator).sort(dim=2).values for size in (7, 5)]
    return torch.stack([ends[0][..., 0], ends[1][..., 0], ends[0][..., 1], ends[1][..., 1]], dim=2)


def slow_inside(rows, box):
    x0, y0, x1, y1 = box
    inside = sum(v for y, row in enumerate(rows) for x, v in enumerate(row) if x0 <= x <= x1 and y0 <= y <= y1)
    whole = sum(sum(row) for row in rows)
    return inside / whole if 0 < whole < float("inf") else NAN


def paired(slow, values, *others):
    """For both of others: the values of two units by image, of those that are defined for both."""
    each = [
        [[slow(*pair) for pair in zip(*units, strict=True)] for units in zip(values, other, strict=True)]
        for other in others
    ]
    return [
        [[one + 0 * two for one, two in zip(*units, strict=True)] for units in zip(*order, strict=True)]
        for order in (each, each[::-1])
    ]


def slow_means(record):
    slow = slow_kept if "unit_scores" in record else slow_inside
    return [mean(map(mean, values)) for values in paired(slow, *(field.tolist() for field in record.values()))]


KEPT = dict(zip(("unit_scores", "cell_scores", "other_cell_scores"), map(scores, range(3)), strict=True))
INSIDE = {"pixel_gradients": maps(), "cell_boxes": boxes(1), "other_boxes": boxes(2)}


class TestBoth(MetricTests):
    cases = {
        "CellAlone": Case(CellAlone, KEPT, lambda record: slow_means(record)[0], nowhere_finite(KEPT), 22),
        "GradientInside": Case(
            GradientInside, INSIDE, lambda record: slow_means(record)[0], {**INSIDE, "pixel_gradients": 0 * maps()}, 22
        ),
    }

    def test_the_control_is_of_the_same_units(self, case):
        summary = updated(case.build(), case.record).summary()
        assert (summary["value"], summary["shifted"]) == pytest.approx(slow_means(case.record))
        assert summary["lift_over_shifted"] == pytest.approx(summary["value"] - summary["shifted"])
