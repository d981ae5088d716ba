import itertools
import math

import pytest
import torch

from protometry.metrics.functional import (
    box_intersection_over_union,
    mask_intersection_over_union,
    weighted_intersection_over_union,
)
from tests.metrics.tester import NAN


def pixels_of(box):
    return set(itertools.product(range(box[0], box[2] + 1), range(box[1], box[3] + 1)))


class TestBoxesAndMasks:
    def test_overlap_by_hand(self):
        boxes = torch.tensor([[0, 0, 1, 1], [0, 0, 0, 0], [0, 0, 1, 1], [0, 0, -1, -1], [0, 0, -1, -1]])
        other = torch.tensor([[1, 1, 2, 2], [0, 0, 0, 0], [5, 5, 6, 6], [0, 0, 1, 1], [0, 0, -1, -1]])
        expected = [1 / 7, 1, 0, NAN, NAN]
        for one, two in ((boxes, other), (other, boxes)):
            assert box_intersection_over_union(one, two).tolist() == pytest.approx(expected, nan_ok=True)

    def test_overlap_slow_oracle(self):
        corners = torch.randint(0, 6, (200, 4), generator=torch.Generator().manual_seed(1))
        boxes = torch.cat(
            [torch.minimum(corners[:, :2], corners[:, 2:]), corners.amax(1, keepdim=True).expand(-1, 2)], 1
        )
        one, two = boxes[:100], boxes[100:]
        expected = [
            len(pixels_of(a) & pixels_of(b)) / len(pixels_of(a) | pixels_of(b))
            for a, b in zip(one.tolist(), two.tolist(), strict=True)
        ]
        assert box_intersection_over_union(one, two).tolist() == pytest.approx(expected)

    def test_masks(self):
        one = torch.tensor([[[True, True]], [[True, False]], [[False, False]], [[True, False]], [[False, False]]])
        two = torch.tensor([[[False, True]], [[False, True]], [[True, True]], [[True, False]], [[False, False]]])
        expected = [0.5, 0, NAN, 1, NAN]
        assert mask_intersection_over_union(one, two).tolist() == pytest.approx(expected, nan_ok=True)
        assert mask_intersection_over_union(two, one).tolist() == pytest.approx(expected, nan_ok=True)

    def test_many_pixels(self):
        # 300 x 300 = 90 000 pixels, of which the other mask holds the first 299 rows
        one = torch.ones(300, 300, dtype=torch.bool)
        two = one.clone()
        two[299] = False
        for masks in (one, one.mT, torch.ones(1, 1, dtype=torch.bool).expand(300, 300)):
            assert mask_intersection_over_union(masks, two) == 299 / 300


class TestWeighted:
    def test_by_hand(self):
        values = torch.tensor([[4.0, 2.0], [1.0, 0.0], [0.0, 0.0], [3.0, 1.0], [NAN, 1.0], [math.inf, 1.0]])
        other = torch.tensor([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0], [3.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
        expected = [2 / 6, 0, NAN, 1, NAN, NAN]
        for one, two in ((values, other), (other, values)):
            assert weighted_intersection_over_union(one, two).tolist() == pytest.approx(expected, nan_ok=True)

    def test_maxima_that_cancel(self):
        assert weighted_intersection_over_union(torch.tensor([1.0, -1.0]), torch.tensor([-2.0, -3.0])).isnan()

    def test_half_precision_sums_in_float64(self):
        ones = torch.ones(5000, dtype=torch.float16)
        assert weighted_intersection_over_union(ones, ones / 2) == 0.5
