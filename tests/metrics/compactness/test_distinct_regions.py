import math
from functools import partial
from typing import ClassVar

import pytest
import torch

from protometry.metrics import DistinctRegions
from protometry.metrics.functional import distinct_regions
from tests.metrics.tester import Case, MetricTests, nowhere_finite


def record():
    generator = torch.Generator().manual_seed(4)
    saliency = torch.rand(13, 5, 4, 4, generator=generator)
    saliency[:, 2], saliency[:, 4] = saliency[:, 0], saliency[:, 1].flip(-1)
    saliency[3], saliency[5, 1:], saliency[7, 2, 0, 0] = 0.5, 0, math.nan
    return {"saliency": saliency}


def slow_count(maps, quantile=0.6):
    regions = []
    for pixels in maps:
        cut = sorted(pixels)[math.floor(quantile * (len(pixels) - 1))]
        if all(map(math.isfinite, pixels)) and max(pixels) > min(pixels):
            regions.append({place for place, value in enumerate(pixels) if value > max(cut, 0)})
    places = []
    for region in filter(None, regions):
        if all(len(region & other) / len(region | other) <= 0.5 for other in places):
            places.append(region)
    return len(places)


def slow(data):
    counts = list(filter(None, map(slow_count, data["saliency"].flatten(2).tolist())))
    return sum(counts) / len(counts) if counts else math.nan


class TestDistinctRegions(MetricTests):
    cases: ClassVar = {
        "distinct_regions": Case(
            partial(DistinctRegions, quantile=0.6), record(), slow, nowhere_finite(record()), skipped=13
        )
    }


def strips(*ends):
    """A row of ten pixels for each unit, positive from the first to the last of ``ends``."""
    maps = torch.zeros(1, len(ends), 1, 10)
    for unit, (first, last) in enumerate(ends):
        maps[0, unit, 0, first : last + 1] = 1 + unit
    return maps


@pytest.mark.parametrize(
    ("regions", "count"),
    [
        ([(0, 3), (0, 3), (0, 3)], 1),
        ([(0, 1), (4, 5), (8, 9)], 3),
        ([(0, 3), (1, 4)], 1),  # 3 of 5 pixels in common
        ([(0, 2), (1, 3)], 2),  # 2 of 4: not above one half
        ([(0, 3), (1, 4), (2, 5)], 2),  # the third is near the second, which is no place, not near the first: 2 of 6
        ([(1, 4), (0, 3), (2, 5)], 1),  # the order decides what a place is: both ends are near the middle
        ([(1, 0), (0, 3)], 1),  # an empty region is not a place
        ([(1, 0)], math.nan),
    ],
)
def test_by_hand(regions, count):
    assert distinct_regions(strips(*regions)).tolist() == pytest.approx([count], nan_ok=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_values_beside_their_sign_do_not_matter(dtype):
    maps = strips((0, 3), (1, 4), (2, 5))
    noncontiguous = (7 * maps).to(dtype).transpose(2, 3).contiguous().transpose(2, 3)
    assert distinct_regions(noncontiguous).tolist() == [2]
    assert distinct_regions(maps, threshold=0.2).tolist() == [1]
    assert distinct_regions(torch.zeros(0, 5, 4, 4)).shape == (0,)
    assert distinct_regions(torch.zeros(2, 0, 4, 4)).isnan().all()  # no active unit
