import math
from fractions import Fraction

import pytest
import torch
import torch.nn.functional as F

from protometry.metrics.functional import binarize_maps, clip_saliency, peak_cells, percentile_mask
from tests.metrics.primitives.maps import each_map, random_maps
from tests.metrics.tester import DTYPES, NAN

SHAPES = [(1, 2), (4, 5), (7, 3), (1, 21), (11, 11)]


def is_flat(values):
    return max(values) - min(values) <= 1e-5 * max(map(abs, values))


def slow_quantile(values, quantile):
    """Linear interpolation between the neighbours, in exact arithmetic."""
    ordered = sorted(map(Fraction, values))
    position = Fraction(str(quantile)) * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def slow_region(values, quantile):
    if is_flat(values):
        return [False] * len(values)
    threshold = slow_quantile(values, quantile)
    return [Fraction(value) > threshold for value in values]


class TestPercentileMask:
    def test_a_whole_position_is_not_above_itself(self):
        # position 0.95 * 20 = 19, quantile = the second largest; 0.29 * 100 = 29, in floats 28.999999999999996
        assert percentile_mask(torch.arange(21.0).view(3, 7)).flatten().nonzero().tolist() == [[20]]
        assert percentile_mask(torch.arange(101.0).view(1, 101), 0.29).sum() == 71
        for n in range(2, 400):
            expected = n - 1 - math.floor(Fraction(19, 20) * (n - 1))
            assert percentile_mask(torch.arange(float(n))[None]).sum() == expected, n

    @pytest.mark.parametrize("quantile", [0.05, 0.5, 0.9, 0.95])
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("ties", [False, True])
    def test_slow_oracle(self, dtype, quantile, ties):
        for seed, shape in enumerate(SHAPES):
            maps = random_maps(seed, (2, 3, *shape), dtype, ties)
            expected = [slow_region(values, quantile) for values in each_map(maps)]
            assert each_map(percentile_mask(maps, quantile)) == expected
            clipped = [
                [max(value, 0) if inside else 0 for value, inside in zip(values, region, strict=True)]
                for values, region in zip(each_map(maps), expected, strict=True)
            ]
            assert (each_map(clip_saliency(maps, quantile)), clip_saliency(maps, quantile).dtype) == (clipped, dtype)

    def test_neighbouring_floats_need_no_rounding_luck(self):
        # the quantile lies between 1 and the next float: only the larger one is above it
        after = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0))
        maps = torch.stack([torch.tensor(-1.0), torch.tensor(1.0), after])[None]
        assert percentile_mask(maps, 0.95).tolist() == [[False, False, True]]

    def test_flat(self):
        for value in (0.0, 3.0, -3.0):
            assert not percentile_mask(torch.full((2, 4, 5), value)).any()
        maps = torch.full((4, 5), 1.0)
        maps[1, 2] = 1 + 9e-6
        assert not percentile_mask(maps).any()
        maps[1, 2] = 1 + 2e-5
        assert percentile_mask(maps).sum() == 1
        assert percentile_mask(maps * -1, 0.5).sum() == 0  # 19 of 20 tie at the maximum

    def test_ripple_of_upsampling_is_flat(self):
        upsampled = F.interpolate(torch.full((1, 1, 7, 7), 0.3), (224, 224), mode="bicubic")
        assert upsampled.unique().numel() > 1
        assert not percentile_mask(upsampled).any()
        assert not clip_saliency(upsampled).any()
        assert not binarize_maps(upsampled).any()

    @pytest.mark.parametrize("bad", [NAN, math.inf, -math.inf])
    def test_not_finite_has_no_region_and_spoils_no_other(self, bad):
        maps = random_maps(0)
        expected = percentile_mask(maps)
        maps[0, 1, 2, 2] = bad
        expected[0, 1] = False
        assert torch.equal(percentile_mask(maps), expected)
        assert not clip_saliency(maps)[0, 1].any()
        assert not binarize_maps(maps)[0, 1].any()
        assert peak_cells(maps)[0, 1].tolist() == [0, 0]

    def test_each_map_on_its_own(self):
        maps = random_maps(1, (8, 2, 5, 6)) * torch.arange(1.0, 9.0).view(8, 1, 1, 1)
        for batch in (1, 3, 8):
            assert torch.equal(torch.cat([clip_saliency(part) for part in maps.split(batch)]), clip_saliency(maps))

    def test_empty_batch_layout_and_one_pixel(self):
        assert percentile_mask(torch.zeros(0, 5, 4, 4)).shape == clip_saliency(torch.zeros(0, 5, 4, 4)).shape
        maps = random_maps(3)
        assert torch.equal(clip_saliency(maps.mT.contiguous().mT), clip_saliency(maps))
        assert not percentile_mask(torch.ones(1, 1)).any()


class TestBinarizeMaps:
    def test_strictly_above_half_the_range(self):
        # range 1 .. 3, half = 2
        assert binarize_maps(torch.tensor([[1.0, 2.0], [2.5, 3.0]])).tolist() == [[False, False], [True, True]]
        assert binarize_maps(torch.tensor([[1.0, 2.0], [2.5, 3.0]]), 0.75).tolist() == [[False, False], [False, True]]

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("threshold", [0.0, 0.25, 0.5])
    def test_slow_oracle(self, dtype, threshold):
        for ties in (False, True):
            maps = random_maps(4, dtype=dtype, ties=ties)
            expected = []
            for values in each_map(maps):
                low, high = Fraction(min(values)), Fraction(max(values))
                expected.append([(Fraction(v) - low) / (high - low) > Fraction(threshold) for v in values])
            assert each_map(binarize_maps(maps, threshold)) == expected

    def test_affine_and_flat(self):
        maps = random_maps(5)
        assert torch.equal(binarize_maps(4 * maps.double() + 7), binarize_maps(maps))
        assert not binarize_maps(torch.full((3, 2, 2), 0.7)).any()
