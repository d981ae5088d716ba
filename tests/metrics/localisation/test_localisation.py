"""Pointing games and intersection over union of saliency with the object."""

import math

import pytest
import torch

from protometry.metrics import EnergyPointingGame, PointingGame, RegionIntersectionOverUnion
from protometry.metrics.functional import energy_pointing_game, pointing_game, region_intersection_over_union
from tests.metrics.saliency import NO_OBJECT, image_mean, record
from tests.metrics.tester import Case, MetricTests, updated

CASE = torch.tensor([[[[1.0, 3.0, 0.0], [1.0, 0.0, -5.0]]]])
MASK = torch.tensor([[[True, False, False], [True, False, False]]])
UNDEFINED = 8  # entries of the record: 3 maps flat or negative, 1 not finite, an empty object, and one that fills all


def usable(values, mask):
    """Whether a map is finite, not flat and somewhere positive, and the object neither missing nor all of the image."""
    return (
        all(map(math.isfinite, values))
        and max(values) > 0
        and max(values) - min(values) > 1e-5 * max(map(abs, values))
        and any(mask)
        and not all(mask)
    )


def peak_hit(values, mask):
    return float(mask[values.index(max(values))])


def energy(values, mask):
    return sum(max(v, 0) for v, m in zip(values, mask, strict=True) if m) / sum(max(v, 0) for v in values)


def region_share(values, mask, quantile=0.95):
    position = quantile * (len(values) - 1)
    below, above = (sorted(values)[f(position)] for f in (math.floor, math.ceil))
    region = [v > below + (above - below) * (position - math.floor(position)) for v in values]
    shared = sum(r and m for r, m in zip(region, mask, strict=True))
    return shared / sum(r or m for r, m in zip(region, mask, strict=True))


KERNELS = {pointing_game: peak_hit, energy_pointing_game: energy, region_intersection_over_union: region_share}
CLASSES = (PointingGame, EnergyPointingGame, RegionIntersectionOverUnion)


class TestEveryClass(MetricTests):
    cases = {
        metric.__name__: Case(metric, record(), image_mean(definition, usable), NO_OBJECT, 22)
        for metric, definition in zip(CLASSES, KERNELS.values(), strict=True)
    }

    def test_what_is_undefined_is_counted(self, case):
        assert updated(case.build(), case.record).summary()["skipped"] == UNDEFINED


def test_hand_cases():
    assert pointing_game(CASE, MASK).tolist() == [[0]]
    assert energy_pointing_game(CASE, MASK).tolist() == [[0.4]]  # 2 of 5
    assert region_intersection_over_union(CASE, MASK).tolist() == [[0]]  # the region is the 3
    # sorted -5, 0, 0, 1, 1, 3: the 0.4 quantile is 0, above it the two 1 and the 3; 2 of 3
    assert region_intersection_over_union(CASE, MASK, quantile=0.4).item() == pytest.approx(2 / 3)
    assert region_intersection_over_union(MASK[:, None].float(), MASK, 0.5).tolist() == [[1]]


def test_perfect_worst_and_chance():
    inside, games = MASK[:, None].float(), (pointing_game, energy_pointing_game)
    assert [kernel(inside, MASK).item() for kernel in games] == [1, 1]
    assert [kernel(1 - inside, MASK).item() for kernel in games] == [0, 0]
    generator = torch.Generator().manual_seed(0)
    saliency, mask = torch.rand(1, 4000, 4, 4, generator=generator), torch.zeros(1, 4, 4, dtype=torch.bool)
    mask[0, 0] = True  # a quarter of the image
    # 4000 hits with a standard deviation of 0.43 each: 0.03 is 4 standard errors
    assert pointing_game(saliency, mask).mean() == pytest.approx(0.25, abs=0.03)
    assert energy_pointing_game(saliency, mask).mean() == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize("kernel", KERNELS)
def test_undefined(kernel):
    for saliency in (torch.full_like(CASE, 2.0), 2 + 1e-6 * CASE, -CASE.abs(), torch.zeros_like(CASE)):
        assert kernel(saliency, MASK).isnan().all()
    for mask in (MASK & False, MASK | True):
        assert kernel(CASE, mask).isnan().all()
    assert kernel(CASE[:0], MASK[:0]).shape == (0, 1)
