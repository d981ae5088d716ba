import math
from typing import ClassVar

import pytest
import torch

from protometry.metrics import RegionIntersectionOverUnion
from protometry.metrics.functional import region_intersection_over_union
from tests.metrics.localisation.saliency import (
    CASE,
    DTYPES,
    MASK,
    NO_OBJECT,
    UNDEFINED,
    image_mean,
    record,
    slow_values,
)
from tests.metrics.tester import Case, MetricTests, updated


def region_share(values, mask, quantile=0.95):
    place = quantile * (len(values) - 1)
    below, above = (sorted(values)[f(place)] for f in (math.floor, math.ceil))
    region = [v > below + (above - below) * (place - math.floor(place)) for v in values]
    shared = sum(r and m for r, m in zip(region, mask, strict=True))
    return shared / sum(r or m for r, m in zip(region, mask, strict=True))


class TestRegionIntersectionOverUnion(MetricTests):
    cases: ClassVar = {"iou": Case(RegionIntersectionOverUnion, record(), image_mean(region_share), NO_OBJECT, 22)}

    def test_what_is_undefined_is_counted(self, case):
        assert updated(case.build(), case.record).summary()["skipped"] == UNDEFINED


def test_hand_cases():
    assert region_intersection_over_union(CASE, MASK).tolist() == [[0]]  # the region is the 3
    # sorted -5, 0, 0, 1, 1, 3: the 0.4 quantile is 0, above it the two 1 and the 3; 2 of 3
    assert region_intersection_over_union(CASE, MASK, quantile=0.4).item() == pytest.approx(2 / 3)
    assert region_intersection_over_union(MASK[:, None].float(), MASK, 0.5).tolist() == [[1]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_and_strides(dtype):
    for seed in range(3):
        data = record(seed, dtype)
        data["saliency"] = data["saliency"].transpose(2, 3).contiguous().transpose(2, 3)
        values = region_intersection_over_union(**data)
        expected = torch.tensor(slow_values(region_share, data), dtype=torch.float64)
        torch.testing.assert_close(values, expected, rtol=0, atol=1e-12, equal_nan=True)


def test_undefined_and_errors():
    for saliency in (torch.full_like(CASE, 2.0), 2 + 1e-6 * CASE, -CASE.abs(), torch.zeros_like(CASE)):
        assert region_intersection_over_union(saliency, MASK).isnan().all()
    for mask in (MASK & False, MASK | True):
        assert region_intersection_over_union(CASE, mask).isnan().all()
    assert region_intersection_over_union(CASE[:0], MASK[:0]).shape == (0, 1)
    for call, text in (
        (
            lambda: region_intersection_over_union(CASE, MASK, quantile=1),
            "`quantile` to lie strictly between 0 and 1, but got 1",
        ),
    ):
        with pytest.raises(ValueError, match=text):
            call()
