import math

import cv2
import numpy as np
import pytest
import torch

from protometry.explanations.explainer import Targets
from protometry.explanations.upsample import Upsample
from protometry.lightning_modules.bases.geometry import Geometry, Layer
from protometry.metrics.primitives.upsample import upsample_maps
from tests.explanations.small_models import MeanPooled, rand, randn

MODES = ["bicubic", "bilinear", "nearest"]
SHAPES = [((3, 5), (21, 40)), ((7, 4), (7 * 8, 4 * 8)), ((1, 1), (4, 3)), ((1, 6), (9, 13))]
BAGNET = Geometry((224, 224), (26, 26), 8, 17, 8.5)  # unpadded: field centres from 8.5 to 208.5
RESNET = Geometry((96, 64), (3, 2), 32, 427, 0.5)
close = torch.testing.assert_close


def kernel(t, mode):
    """The interpolation kernels by their definitions (Keys 1981 with a = -0.75)."""
    t = abs(t)
    if mode == "bilinear":
        return max(1 - t, 0.0)
    a = -0.75
    if t <= 1:
        return (a + 2) * t**3 - (a + 3) * t**2 + 1
    return a * (t**3 - 5 * t**2 + 8 * t - 4) if t < 2 else 0.0


def axis_weights(cells, pixels, mode, geometry):
    """``(pixels, cells)`` float64 weights, one pixel and tap at a time."""
    weights = torch.zeros(pixels, cells, dtype=torch.float64)
    for x in range(pixels):
        at = (x + 0.5) * cells / pixels - 0.5 if geometry is None else (x + 0.5 - geometry.start) / geometry.jump
        if mode == "nearest":
            weights[x, min(max(math.floor(at + 0.5), 0), cells - 1)] = 1
            continue
        for tap in range(math.floor(at) - 1, math.floor(at) + 3):
            weights[x, min(max(tap, 0), cells - 1)] += kernel(at - tap, mode)
    return weights


def slow(maps, size, mode, geometry=None):
    rows = axis_weights(maps.shape[1], size[0], mode, geometry)
    columns = axis_weights(maps.shape[2], size[1], mode, geometry)
    return torch.stack([rows @ one.double() @ columns.T for one in maps]).float()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("grid", "size"), SHAPES)
def test_resize_equals_the_definition(grid, size, mode):
    maps = randn(2, *grid)
    close(upsample_maps(maps, size, mode), slow(maps, size, mode), rtol=0, atol=3e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("geometry", [BAGNET, RESNET])
def test_geometry_equals_the_definition(geometry, mode):
    maps = randn(2, *geometry.grid)
    close(upsample_maps(maps, geometry.image, mode, geometry.lines), slow(maps, geometry.image, mode, geometry), rtol=0,
          atol=2e-5)  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "flag"),
    [("bicubic", cv2.INTER_CUBIC), ("bilinear", cv2.INTER_LINEAR), ("nearest", cv2.INTER_NEAREST_EXACT)],
)
@pytest.mark.parametrize(("grid", "size"), SHAPES)
def test_resize_equals_opencv(grid, size, mode, flag):
    """OpenCV takes (width, height), our size argument is (H, W)."""
    maps = randn(1, *grid)
    published = cv2.resize(maps[0].numpy(), (size[1], size[0]), interpolation=flag)
    np.testing.assert_allclose(upsample_maps(maps, size, mode)[0].numpy(), published, rtol=0, atol=3e-6)


def test_geometry_puts_a_cell_at_the_centre_of_its_receptive_field():
    """Cell (2, 20) of the unpadded grid looks at pixels 16..32 and 160..176, centred at 24.5 and 168.5."""
    maps = torch.zeros(1, *BAGNET.grid)
    maps[0, 2, 20] = 1.0
    placed, resized = (upsample_maps(maps, BAGNET.image, "bilinear", g)[0] for g in (BAGNET.lines, None))
    assert divmod(placed.argmax().item(), 224) == (24, 168)
    assert divmod(resized.argmax().item(), 224) == (21, 176)  # (2.5 * 224 / 26, 20.5 * 224 / 26): eight pixels off
    rows, columns = (placed > 1e-5).nonzero().unbind(1)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (17, 31, 161, 175)  # one jump about the centre


def test_a_pixel_halfway_between_cells_takes_the_later_one():
    """Start 1/2 and jump 4: pixel 2 lies at 1/2, pixel 6 at 3/2."""
    geometry = Geometry((1, 12), (1, 3), 4, 7, 0.5)
    placed = upsample_maps(torch.tensor([[[0.0, 1.0, 2.0]]]), (1, 12), "nearest", geometry.lines)
    assert placed.flatten().tolist() == [0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2]
    odd = upsample_maps(torch.tensor([[[0.0, 1.0]]]), (1, 3), "nearest")  # pixel 1 lies at 1/2
    assert odd.flatten().tolist() == [0, 1, 1]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lattice", [None, RESNET.lines])
def test_the_result_does_not_depend_on_the_batch_or_the_memory_format(mode, lattice):
    maps = randn(5, 3, 3, 2)
    together = upsample_maps(maps[:, 1], (96, 64), mode, lattice)
    alone = torch.cat([upsample_maps(one[None, 1], (96, 64), mode, lattice) for one in maps])
    permuted = upsample_maps(maps.to(memory_format=torch.channels_last)[:, 1], (96, 64), mode, lattice)
    assert torch.equal(together, alone)
    assert torch.equal(together, permuted)


def test_units_of_an_image_are_its_own():
    """Image 0 asks for channels 2 and 0, image 1 for 1 and nothing; the backbone is the identity on 4 x 6 pixels."""
    model, images = MeanPooled(torch.nn.Identity(), torch.ones(2, 3)), rand(2, 3, 4, 6)
    maps = Upsample("nearest").attribute(model, images, Targets("unit", torch.tensor([[2, 0], [1, -1]])))
    assert torch.equal(maps[0], images[0, [2, 0]])
    assert torch.equal(maps[1, 0], images[1, 1])
    assert maps[1, 1].isnan().all()


def test_placement_reads_the_models_geometry():
    """A 5x5 convolution of stride 4 without padding on 13 x 21 pixels: start 2.5, jump 4."""
    layers, torch_layer = (Layer(5, 4, 0),), torch.nn.Conv2d(3, 2, 5, stride=4)
    model = MeanPooled(torch_layer, torch.ones(2, 2), layers=layers, size=(13, 21))
    images, targets = rand(1, 3, 13, 21), Targets("unit", torch.tensor([[1]]))
    cells = model(images).maps[:, 1].detach()
    placed = Upsample("bilinear", "geometry").attribute(model, images, targets)
    assert (model.geometry.start, model.geometry.jump) == (2.5, 4)
    close(placed[:, 0], slow(cells, (13, 21), "bilinear", model.geometry), rtol=0, atol=1e-5)
    close(placed[0, 0, 2::4, 2::4], cells[0], rtol=0, atol=1e-6)  # pixel 2 has its centre at 2.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "cubic"}, r"`mode` to be one of \('bicubic', 'bilinear', 'nearest'\), but got 'cubic'"),
        ({"placement": "centre"}, r"`placement` to be one of \('resize', 'geometry'\), but got 'centre'"),
    ],
)
def test_unknown_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Upsample(**options)
