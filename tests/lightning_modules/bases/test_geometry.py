"""Geometry of latent grids: arithmetic by hand, tiles that cover the image, and fields where gradients arrive."""

from __future__ import annotations

import re
from random import Random

import pytest
import torch
from torch import nn

from protometry.lightning_modules.bases.geometry import Geometry, Layer
from protometry.metrics.functional import cell_boxes

HAND = Geometry(image=(7, 10), grid=(3, 4), jump=3, receptive_field=5, start=1.5)


def test_convolution_arithmetic_by_hand():
    """Two layers on 16x9 pixels: 3x3 stride 2 padding 1, then 2x2 stride 2.

    grid: (16+2-3)//2+1 = 8, (9+2-3)//2+1 = 5; (8-2)//2+1 = 4, (5-2)//2+1 = 2. field: 1+2 = 3, 3+1*2 = 5.
    start: 0.5+(1-1)*1 = 0.5, 0.5+(0.5-0)*2 = 1.5. jump: 2*2 = 4.
    """
    geometry = Geometry.of([Layer(3, 2, 1), Layer(2, 2, 0)], (16, 9))
    assert geometry == Geometry(image=(16, 9), grid=(4, 2), jump=4, receptive_field=5, start=1.5)


def test_no_layers_is_the_image():
    geometry = Geometry.of([], (2, 3))
    assert geometry == Geometry((2, 3), (2, 3), 1, 1, 0.5)
    for size in ("cell", "receptive_field", 1):
        assert geometry.cell_box(1, 2, size) == (2, 1, 2, 1)


@pytest.mark.parametrize(("row", "col", "box"), [
    (0, 0, (0, 0, 2, 2)),  # centres 1.5 + 3 i: three pixels each
    (0, 1, (3, 0, 5, 2)),
    (1, 3, (9, 3, 9, 5)),  # centre x 10.5: 9..11, clipped
    (2, 2, (6, 6, 8, 6)),
])  # fmt: skip
def test_cells_lie_about_what_they_read(row, col, box):
    assert HAND.cell_box(row, col) == box
    tensor = cell_boxes(torch.tensor([col, row]), HAND.grid, HAND.image, HAND.lattice)
    assert tuple(tensor.tolist()) == box


def test_cells_that_fill_an_axis_tile_it():
    """Two rows of 4 pixels fill 8, although the first centre is 0.5; two columns do not fill 7."""
    geometry = Geometry.of([Layer(3, 2, 1), Layer(3, 2, 1)], (8, 7))
    assert [geometry.cell_box(index, index) for index in range(2)] == [(0, 0, 2, 3), (3, 4, 6, 7)]
    assert geometry.lattice == ((2.0, 4), (0.5, 4))
    assert Geometry.of([Layer(3, 2, 1), Layer(3, 2, 1)], (8, 8)).lattice is None


@pytest.mark.parametrize(("cell", "size", "box"), [
    ((1, 1), "receptive_field", (2, 2, 6, 6)),  # centre 4.5, 2.5 to either side
    ((0, 0), "receptive_field", (0, 0, 3, 3)),  # centre 1.5: -1..3, clipped
    ((1, 3), "receptive_field", (8, 2, 9, 6)),  # centre x 10.5: 8..12, clipped
    ((1, 1), 3, (3, 3, 5, 5)),
    ((0, 0), 5, (0, 0, 4, 4)),  # -1..3, shifted inside
    ((1, 3), 4, (6, 3, 9, 6)),  # x 8.5..12.5, shifted; y 2.5..6.5 rounds to 3..6
    ((0, 3), 7, (3, 0, 9, 6)),
])  # fmt: skip
def test_boxes_about_the_centre(cell, size, box):
    assert HAND.cell_box(*cell, size=size) == box


@pytest.mark.parametrize("seed", range(60))
def test_boxes_are_inside_and_cells_cover_every_pixel(seed):
    """Of images of up to 40 pixels; every fourth axis has one cell, or a cell for each pixel."""
    draw = Random(seed)
    height, width = draw.randint(1, 40), draw.randint(1, 40)
    grid = tuple(draw.choice((1, side, *[draw.randint(1, side)] * 6)) for side in (height, width))
    geometry = Geometry((height, width), grid, None, None, None)  # of a network that could not be measured
    covered = torch.zeros(height, width, dtype=torch.bool)
    for row in range(grid[0]):
        for col in range(grid[1]):
            x0, y0, x1, y1 = geometry.cell_box(row, col)
            assert 0 <= x0 <= x1 < width
            assert 0 <= y0 <= y1 < height
            covered[y0 : y1 + 1, x0 : x1 + 1] = True
    assert covered.all()


@pytest.mark.parametrize("layers", [
    [Layer(3, 1, 1), Layer(2, 2, 0)],
    [Layer(5, 2, 2), Layer(3, 1, 1), Layer(3, 2, 0)],
    [Layer(4, 2, 1), Layer(2, 2, 0), Layer(1, 1, 0)],
])  # fmt: skip
@pytest.mark.parametrize("image", [(24, 24), (17, 30)])
def test_receptive_field_is_where_gradients_arrive(layers, image):
    net = nn.Sequential(*[nn.Conv2d(1, 1, la.kernel, la.stride, la.padding, bias=False) for la in layers]).double()
    for layer in net:
        nn.init.ones_(layer.weight)  # nothing cancels
    geometry = Geometry.of(layers, image)
    pixels = torch.ones(1, 1, *image, dtype=torch.float64, requires_grad=True)
    output = net(pixels)
    assert output.shape[2:] == geometry.grid
    for row, col in [(0, 0), (1, 2), (geometry.grid[0] - 1, geometry.grid[1] - 1)]:
        (gradient,) = torch.autograd.grad(output[0, 0, row, col], pixels, retain_graph=True)
        y, x = gradient[0, 0].nonzero().T
        reached = (int(x.min()), int(y.min()), int(x.max()), int(y.max()))
        assert geometry.cell_box(row, col, "receptive_field") == reached


@pytest.mark.parametrize(("layers", "image", "said"), [
    ([Layer(16, 16, 0)], (239, 230), ["15 rows .*lower .*`--data.image_size 224` or 240", "6 columns .*right"]),
    ([Layer(9, 8, 0)], (64, 65), ["7 rows .*`--data.image_size 57` or 65 fits"]),  # unpadded: 9 + 8 n pixels
    ([Layer(3, 2, 1)], (8, 7), []),  # padded: the last cell reaches beyond the image
    ([Layer(65, 32, 32)], (32, 32), ["One cell stands for the whole image"]),
])  # fmt: skip
def test_what_to_know_of_a_grid(layers, image, said):
    caveats = Geometry.of(layers, image).caveats()
    assert len(caveats) == len(said)
    for caveat, pattern in zip(caveats, said, strict=True):
        assert re.search(pattern, caveat)


def test_geometry_errors():
    with pytest.raises(ValueError, match=r"Expected argument `image_size` to leave at least one .* got \(4, 1\)"):
        Geometry.of([Layer(2, 2, 0)], (4, 1))
    for cell in ((3, 0), (0, 4), (-1, 0)):
        with pytest.raises(ValueError, match=r"to lie in the grid \(3, 4\), but got"):
            HAND.cell_box(*cell)
    for size in (0, 8):  # the image is 7 pixels high
        with pytest.raises(ValueError, match=f"`size` to be between 1 and .* pixels, but got {size}"):
            HAND.cell_box(0, 0, size)
