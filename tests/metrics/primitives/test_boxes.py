import math
from fractions import Fraction

import pytest
import torch

from protometry.lightning_modules.bases.geometry import Geometry
from protometry.metrics.functional import bounding_boxes, cell_boxes, patch_boxes, points_in_boxes, window_boxes
from tests.metrics.tester import NAN


def slow_box(mask):
    pixels = [(x, y) for y, row in enumerate(mask) for x, inside in enumerate(row) if inside]
    if not pixels:
        return [0, 0, -1, -1]
    xs, ys = zip(*pixels, strict=True)
    return [min(xs), min(ys), max(xs), max(ys)]


class TestBoundingBoxes:
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


class TestFrames:
    def test_windows(self):
        peaks = torch.tensor([[10, 100], [0, 0], [223, 223], [100, 100]])
        expected = [[0, 64, 46, 136], [0, 0, 36, 36], [187, 187, 223, 223], [64, 64, 136, 136]]
        assert window_boxes(peaks, (224, 224)).tolist() == expected
        # 10 rows, 20 columns
        assert window_boxes(torch.tensor([18, 8]), (10, 20), 3).tolist() == [15, 5, 19, 9]

    def test_patches(self):
        assert patch_boxes(torch.tensor([0, 6]), (7, 7), (224, 224)).tolist() == [0, 192, 31, 223]
        # one column: centred; two rows: top and bottom
        assert patch_boxes(torch.tensor([0, 1]), (2, 1), (8, 10), 4).tolist() == [3, 4, 6, 7]

    @pytest.mark.parametrize(("grid", "size"), [((7, 7), (224, 224)), ((3, 5), (32, 48)), ((1, 2), (5, 5))])
    def test_cells(self, grid, size):
        """As the geometry of a network has them."""
        places = [(row, column) for row in range(grid[0]) for column in range(grid[1])]
        geometry = Geometry(size, grid, None, None, None)
        expected = [list(geometry.cell_box(*place)) for place in places]
        assert cell_boxes(torch.tensor(places).flip(1), grid, size).tolist() == expected

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
        assert (boxes.tolist(), boxes.amax(0).tolist()) == (expected, [168, 192, 199, 223])
