import itertools
import math
from fractions import Fraction

import pytest
import torch
import torch.nn.functional as F

from metrics.functional import (
    binarize_maps,
    bounding_boxes,
    box_intersection_over_union,
    clip_saliency,
    mask_intersection_over_union,
    patch_boxes,
    peak_cells,
    peak_locations,
    percentile_mask,
    points_in_boxes,
    weighted_intersection_over_union,
    window_boxes,
)

NAN = math.nan
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
SHAPES = [(1, 2), (4, 5), (7, 3), (1, 21), (11, 11)]


def random_maps(seed, shape=(2, 3, 4, 5), dtype=torch.float32, ties=False):
    generator = torch.Generator().manual_seed(seed)
    if ties:
        return torch.randint(-2, 3, shape, generator=generator).to(dtype)
    return torch.randn(shape, generator=generator).to(dtype)


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


def each_map(maps):
    return maps.flatten(end_dim=-3).flatten(start_dim=1).tolist()


def slow_box(mask):
    pixels = [(x, y) for y, row in enumerate(mask) for x, inside in enumerate(row) if inside]
    if not pixels:
        return [0, 0, -1, -1]
    xs, ys = zip(*pixels, strict=True)
    return [min(xs), min(ys), max(xs), max(ys)]


def pixels_of(box):
    return set(itertools.product(range(box[0], box[2] + 1), range(box[1], box[3] + 1)))


class TestPercentileMask:
    def test_twenty_values(self):
        # position 0.95 * 19 = 18.05, quantile 19 + 0.05 = 19.05
        assert percentile_mask(torch.arange(1.0, 21.0).view(4, 5)).flatten().nonzero().tolist() == [[19]]

    def test_a_whole_position_is_not_above_itself(self):
        # position 0.95 * 20 = 19, quantile = the second largest; 0.29 * 100 = 29, in floats 28.999999999999996
        assert percentile_mask(torch.arange(21.0).view(3, 7)).flatten().nonzero().tolist() == [[20]]
        assert percentile_mask(torch.arange(101.0).view(1, 101), 0.29).sum() == 71
        for n in range(2, 400):
            expected = n - 1 - math.floor(Fraction(19, 20) * (n - 1))
            assert percentile_mask(torch.arange(float(n))[None]).sum() == expected, n

    def test_three_percent_positive_keeps_exactly_those(self):
        maps = torch.zeros(10, 10)
        maps[2, 3], maps[9, 0], maps[4, 4] = 1, 2, 3
        assert torch.equal(percentile_mask(maps), maps > 0)

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
            assert each_map(clip_saliency(maps, quantile)) == clipped
            assert clip_saliency(maps, quantile).dtype == dtype

    def test_torch_quantile_agrees(self):
        maps = random_maps(5, (6, 30, 40), torch.float64)
        threshold = torch.quantile(maps.flatten(1), 0.95, dim=1)[:, None, None]
        assert torch.equal(percentile_mask(maps), maps > threshold)

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

    def test_scaling_and_shifting(self):
        maps = random_maps(2)
        assert torch.equal(percentile_mask(4 * maps), percentile_mask(maps))
        assert torch.equal(percentile_mask(maps.double() + 3), percentile_mask(maps))
        assert torch.equal(clip_saliency(4 * maps), 4 * clip_saliency(maps))

    def test_all_negative_clips_to_nothing(self):
        maps = -torch.arange(1.0, 21.0).view(4, 5)
        assert percentile_mask(maps).sum() == 1
        assert not clip_saliency(maps).any()

    def test_empty_batch_layout_and_one_pixel(self):
        assert percentile_mask(torch.zeros(0, 5, 4, 4)).shape == clip_saliency(torch.zeros(0, 5, 4, 4)).shape
        maps = random_maps(3)
        assert torch.equal(clip_saliency(maps.mT.contiguous().mT), clip_saliency(maps))
        assert not percentile_mask(torch.ones(1, 1)).any()

    def test_errors(self):
        for kernel in (percentile_mask, clip_saliency):
            for quantile in (0.0, 1.0, 95):
                with pytest.raises(ValueError, match=f"`quantile` to lie strictly between 0 and 1, but got {quantile}"):
                    kernel(torch.zeros(2, 2), quantile)
        for kernel in (percentile_mask, binarize_maps, peak_cells):
            for maps in (torch.zeros(3), torch.zeros(2, 2, dtype=torch.int64), torch.zeros(2, 0, 3)):
                with pytest.raises(ValueError, match=r"`maps` to be of shape \(\.\.\., H, W\) and dtype float"):
                    kernel(maps)


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

    def test_errors(self):
        for threshold in (-0.1, 1.0):
            with pytest.raises(ValueError, match=r"`threshold` to lie in \[0, 1\), but got"):
                binarize_maps(torch.zeros(2, 2), threshold)


class TestBoxes:
    @pytest.mark.parametrize("share", [0.05, 0.3, 1.0])
    def test_slow_oracle(self, share):
        masks = torch.rand(4, 3, 4, 7, generator=torch.Generator().manual_seed(0)) < share
        boxes = bounding_boxes(masks)
        assert boxes.dtype == torch.int64
        assert boxes.flatten(end_dim=1).tolist() == [slow_box(mask) for mask in masks.flatten(end_dim=1).tolist()]
        assert torch.equal(bounding_boxes(masks.mT.contiguous().mT), boxes)

    def test_ends(self):
        assert bounding_boxes(torch.zeros(3, 4, dtype=torch.bool)).tolist() == [0, 0, -1, -1]
        assert bounding_boxes(torch.ones(3, 4, dtype=torch.bool)).tolist() == [0, 0, 3, 2]
        assert bounding_boxes(torch.ones(1, 1, dtype=torch.bool)).tolist() == [0, 0, 0, 0]
        assert bounding_boxes(torch.zeros(0, 3, 4, dtype=torch.bool)).shape == (0, 4)
        with pytest.raises(ValueError, match=r"`masks` to be of shape \(\.\.\., H, W\) and dtype bool"):
            bounding_boxes(torch.zeros(3, 4))

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

    def test_errors(self):
        with pytest.raises(ValueError, match=r"`boxes` to be of shape \(\.\.\., 4\)"):
            box_intersection_over_union(torch.zeros(2, 3), torch.zeros(2, 4))
        with pytest.raises(ValueError, match=r"`other` to be of shape \(\.\.\., 4\)"):
            box_intersection_over_union(torch.zeros(2, 4), torch.tensor(0))
        with pytest.raises(ValueError, match="`masks`, `other` to be bool"):
            mask_intersection_over_union(torch.zeros(2, 4), torch.zeros(2, 4))


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
        with pytest.raises(ValueError, match=r"`other` to be of shape \(5000,\), but got \(2,\)"):
            weighted_intersection_over_union(ones, ones[:2])


class TestPoints:
    def test_by_hand(self):
        points = torch.tensor([[[2.0, 1.0], [4.9, 3.2], [5.0, 3.0], [1.99, 2.0], [3.0, 0.9], [3.0, 4.0], [NAN, 2.0]]])
        boxes = torch.tensor([[[2, 1, 4, 3], [0, 0, -1, -1]]])
        expected = [True, True, False, False, False, False, False]
        assert points_in_boxes(points, boxes).tolist() == [[expected, [False] * 7]]

    def test_each_image_has_its_boxes(self):
        points = torch.tensor([[[0.5, 0.5]], [[2.5, 0.5]]])
        boxes = torch.tensor([[[0, 0, 0, 0], [1, 0, 3, 0]], [[0, 0, 0, 0], [1, 0, 3, 0]]])
        assert points_in_boxes(points, boxes).tolist() == [[[True], [False]], [[False], [True]]]
        assert points_in_boxes(torch.zeros(0, 3, 2), torch.zeros(0, 2, 4)).shape == (0, 2, 3)

    def test_errors(self):
        with pytest.raises(ValueError, match="`points`, `boxes` to be of shapes"):
            points_in_boxes(torch.zeros(2, 3, 2), torch.zeros(1, 2, 4))
        with pytest.raises(ValueError, match=r"`points` to be of shape \(\.\.\., 2\)"):
            points_in_boxes(torch.zeros(2, 3, 3), torch.zeros(2, 2, 4))
        with pytest.raises(ValueError, match=r"`boxes` to be of shape \(\.\.\., 4\)"):
            points_in_boxes(torch.zeros(2, 3, 2), torch.zeros(2, 2, 3))


class TestPeaks:
    def test_ties_go_to_the_first_in_row_major_order(self):
        assert peak_cells(torch.tensor([[0.0, 2, 2], [2, 0, 0]])).tolist() == [1, 0]
        assert peak_cells(torch.tensor([[0.0, 0, 0, 0, 0], [0, 0, 0, 0, 1]])).tolist() == [4, 1]

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("ties", [False, True])
    def test_slow_oracle(self, dtype, ties):
        maps = random_maps(6, (3, 2, 2, 5), dtype, ties)
        expected = []
        for values in each_map(maps):
            index = values.index(max(values))
            expected.append([index % 5, index // 5])
        peaks = peak_cells(maps)
        assert peaks.dtype == torch.int64
        assert peaks.flatten(end_dim=1).tolist() == expected

    def test_flat_is_the_first_cell(self):
        maps = torch.full((2, 3), 1.0)
        maps[1, 1] += 5e-6
        assert peak_cells(maps).tolist() == [0, 0]
        assert peak_cells(torch.zeros(0, 4, 3, 3)).shape == (0, 4, 2)

    @pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
    def test_locations(self, mode, dtype):
        maps = random_maps(7, (2, 3, 3, 4), dtype)
        image = F.interpolate(maps.float(), (12, 20), mode=mode).flatten(end_dim=1)
        expected = [[int(m.argmax()) % 20, int(m.argmax()) // 20] for m in image]
        assert peak_locations(maps, (12, 20), mode).flatten(end_dim=1).tolist() == expected

    def test_locations_in_chunks(self, monkeypatch):
        maps = random_maps(8, (5, 3, 3, 4))
        whole = peak_locations(maps, (12, 20))
        monkeypatch.setattr("metrics.functional.primitives.peaks.UPSAMPLED_ELEMENTS", 500)
        assert torch.equal(peak_locations(maps, (12, 20)), whole)
        assert peak_locations(torch.zeros(0, 2, 3, 3), (6, 6)).shape == (0, 2, 2)
        assert peak_locations(torch.full((1, 7, 7), 0.3), (224, 224)).tolist() == [[0, 0]]
        with pytest.raises(ValueError, match=r"`mode` to be one of .*, but got 'nearest'"):
            peak_locations(maps, (12, 20), "nearest")


class TestFrames:
    def test_windows(self):
        peaks = torch.tensor([[10, 100], [0, 0], [223, 223], [100, 100]])
        expected = [[0, 64, 46, 136], [0, 0, 36, 36], [187, 187, 223, 223], [64, 64, 136, 136]]
        assert window_boxes(peaks, (224, 224)).tolist() == expected
        # 10 rows, 20 columns
        assert window_boxes(torch.tensor([18, 8]), (10, 20), 3).tolist() == [15, 5, 19, 9]
        with pytest.raises(ValueError, match="`half_width` to be at least 0, but got -1"):
            window_boxes(peaks, (224, 224), -1)
        with pytest.raises(ValueError, match=r"`peaks` to be of shape \(\.\.\., 2\)"):
            window_boxes(torch.zeros(3), (224, 224))

    def test_patches(self):
        assert patch_boxes(torch.tensor([0, 6]), (7, 7), (224, 224)).tolist() == [0, 192, 31, 223]
        # one column: centred; two rows: top and bottom
        assert patch_boxes(torch.tensor([0, 1]), (2, 1), (8, 10), 4).tolist() == [3, 4, 6, 7]

    @pytest.mark.parametrize("grid", [(7, 7), (26, 26), (28, 13), (3, 2)])
    def test_patches_slow_oracle(self, grid):
        size = (224, 200)
        cells = torch.tensor([[x, y] for y in range(grid[0]) for x in range(grid[1])])
        half = Fraction(1, 2)
        expected = []
        for x, y in cells.tolist():
            x0 = math.floor(Fraction(x * (200 - 32), grid[1] - 1) + half)
            y0 = math.floor(Fraction(y * (224 - 32), grid[0] - 1) + half)
            expected.append([x0, y0, x0 + 31, y0 + 31])
        boxes = patch_boxes(cells, grid, size)
        assert boxes.tolist() == expected
        assert boxes.amax(0).tolist() == [168, 192, 199, 223]

    def test_patch_errors(self):
        with pytest.raises(ValueError, match="`patch` to be between 1 and 16 pixels, but got 32"):
            patch_boxes(torch.tensor([0, 0]), (7, 7), (16, 224))
        with pytest.raises(ValueError, match=r"`cells` to be of shape \(\.\.\., 2\)"):
            patch_boxes(torch.zeros(3), (7, 7), (224, 224))
