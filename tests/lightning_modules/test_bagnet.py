from __future__ import annotations

import copy
from functools import cache

import pytest
import torch
from torch import nn

from protometry.lightning_modules.bagnet import BagNet
from protometry.metrics.functional import masked_projected_gradient, misalignment_activation_change

FIELDS = [9, 17, 33]
SIZE = (48, 64)
close = torch.testing.assert_close


@cache
def shared(field: int) -> BagNet:
    """With BatchNorm statistics that are not 0 and 1; built once for the tests that only read it."""
    torch.manual_seed(field)
    model = BagNet(num_classes=5, image_size=SIZE, backbone={"name": f"bagnet{field}"})
    with torch.no_grad():
        model.linear.bias.copy_(torch.linspace(-3, 3, 5))
        for _ in range(3):
            model(picture(4))
    return model.eval()


def picture(batch: int = 1) -> torch.Tensor:
    return torch.rand(batch, 3, *SIZE, generator=torch.Generator().manual_seed(batch))


@pytest.mark.parametrize("field", FIELDS)
def test_mean_over_cells_is_the_logit_bias_included(field):
    model = shared(field)
    with torch.inference_mode():
        output = model(picture(3))
        close(output.maps.mean((2, 3)), output.logits, rtol=0, atol=1e-5)
        assert torch.equal(output.scores, output.logits)
        # the class evidence as Brendel and Bethge pool it: features first, then the linear layer
        pooled = output.latent.mean((2, 3)) @ model.linear.weight.T + model.linear.bias
        close(output.logits, pooled, rtol=0, atol=1e-5)
        assert output.maps.shape == (3, 5, *model.geometry.grid)
        assert output.latent.shape == (3, 2048, *model.geometry.grid)


@pytest.mark.parametrize(("field", "cells"), [(9, 27), (17, 26), (33, 24)])
def test_grid_of_the_paper_at_224_pixels(field, cells):
    model = copy.deepcopy(shared(field)).to("meta")
    assert model(torch.zeros(1, 3, 224, 224, device="meta")).maps.shape == (1, 5, cells, cells)
    assert model.backbone.geometry((224, 224)).grid == (cells, cells)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("axis", [2, 3])
def test_no_pixel_outside_its_field_reaches_a_cell(field, axis):
    """Image i is noise but for rows (columns) 8i to 8i + q - 1: its cells of row (column) i are the same bits."""
    model, cells = shared(field), shared(field).geometry.grid[axis - 2]
    first, pixel = 8 * torch.arange(cells)[:, None], torch.arange(SIZE[axis - 2])
    inside = (pixel >= first) & (pixel < first + field)
    kept = inside[:, None, :, None] if axis == 2 else inside[:, None, None, :]
    clean = picture().expand(cells, -1, -1, -1)
    noise = torch.rand(clean.shape, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        before, after = model(clean).maps, model(torch.where(kept, clean, noise)).maps
    for cell in range(cells):
        assert torch.equal(after[cell].select(axis - 1, cell), before[cell].select(axis - 1, cell))
    assert not torch.equal(after, before)


@pytest.mark.parametrize("field", FIELDS)
def test_the_corners_of_its_field_reach_a_cell(field):
    model, grid = shared(field), shared(field).geometry.grid
    row, col = grid[0] - 1, grid[1] - 2
    corners = [(8 * row + y, 8 * col + x) for y in (0, field - 1) for x in (0, field - 1)]
    images = picture().repeat(5, 1, 1, 1)
    for index, (y, x) in enumerate(corners, start=1):
        images[index, :, y, x] = 1 - images[index, :, y, x].round()  # the far end of the range
    with torch.inference_mode():
        maps = model(images).maps[:, :, row, col]
    assert (maps[1:] != maps[0]).any(1).all()


@pytest.mark.parametrize("field", FIELDS)
def test_a_cell_is_the_model_on_its_patch_alone(field):
    """The definition of the paper: the class evidence of each q×q patch."""
    model, (rows, cols) = shared(field), shared(field).geometry.grid
    image = picture()[0]
    patches = image.unfold(1, field, 8).unfold(2, field, 8).permute(1, 2, 0, 3, 4)
    assert patches.shape[:2] == (rows, cols)
    with torch.inference_mode():
        alone = model(patches.flatten(0, 1)).logits.view(rows, cols, 5)
        close(model(image[None]).maps[0].permute(1, 2, 0), alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("field", FIELDS)
def test_no_attack_outside_its_field_moves_a_cell(field):
    """Misalignment of a cell is exactly 0 where its whole field is protected; of the mean over cells it is not."""
    model = shared(field)
    row, col = (cells // 2 for cells in model.geometry.grid)
    x0, y0, x1, y1 = model.geometry.cell_box(row, col, "receptive_field")
    free = torch.ones(1, 1, *SIZE, dtype=torch.bool)
    free[:, :, y0 : y1 + 1, x0 : x1 + 1] = False

    def cell(images):
        return model(images).maps[:, :, row, col]

    attacked = masked_projected_gradient(lambda images: model(images).logits, picture(), free, 0.1, 0.05, steps=2)
    with torch.inference_mode():
        before, after = cell(picture()), cell(attacked)
        target = before.argmax(1)
        changes = misalignment_activation_change(before, after, target)
        assert changes.tolist() == [0.0]
        assert model(attacked).logits.sum() < model(picture()).logits.sum()


@pytest.mark.parametrize("field", FIELDS)
def test_dense_maps_are_the_logits_of_the_patches_around_pixels(field):
    """Every third row and column of a small image, which are all offsets within a step of 8."""
    torch.manual_seed(field)
    size = (field + 1, field + 9)
    model = BagNet(num_classes=3, image_size=size, backbone={"name": f"bagnet{field}", "width": 16}).eval()
    images = torch.rand(2, 3, *size)
    dense = model.dense_maps(images)
    assert dense.shape == (2, 3, *size)
    rounding = 1e-4 * float(dense.abs().max())
    patches = nn.functional.pad(images, [field // 2] * 4).unfold(2, field, 1).unfold(3, field, 1)[:, :, ::3, ::3]
    with torch.inference_mode():
        logits = model(patches.permute(0, 2, 3, 1, 4, 5).flatten(0, 2)).logits
        expected = logits.view(2, *patches.shape[2:4], 3).permute(0, 3, 1, 2)
        close(dense[:, :, ::3, ::3], expected, rtol=0, atol=rounding)
        start, native = int(model.geometry.start), model(images).maps  # the grid of the model is a part of it
        close(
            dense[:, :, start::8, start::8][:, :, : native.shape[2], : native.shape[3]], native, rtol=0, atol=rounding
        )


def test_units_are_the_classes():
    model = shared(9)
    table = model.units()
    assert (table.kind, table.pool, table.comparison) == ("class", "mean", "projection")
    assert torch.equal(table.weight, torch.eye(5))
    assert torch.equal(table.owner, torch.eye(5).bool())
    output = model(picture(2))
    products = torch.einsum("bdhw,kd->bkhw", output.latent, table.vectors) + model.linear.bias[:, None, None]
    close(output.maps, products, rtol=1e-4, atol=1e-5)
    shares = model.contributions(output, torch.tensor([3, 0]))
    assert shares.count_nonzero() == 2
    assert torch.equal(shares[[0, 1], [3, 0]], output.logits[[0, 1], [3, 0]])


def test_the_largest_field_is_the_default():
    torch.manual_seed(0)
    model = BagNet(num_classes=2, image_size=(40, 33))
    assert model.geometry.receptive_field == 33
    assert model.geometry.grid == (1, 1)


def test_backbones_whose_cells_see_everything_are_refused():
    with pytest.raises(
        ValueError,
        match=r"`backbone.name` of BagNet to be one of \['bagnet9', 'bagnet17', 'bagnet33'\], but got 'sketch'",
    ):
        BagNet(num_classes=2, image_size=SIZE, backbone={"name": "sketch"})


def test_images_smaller_than_a_patch_are_refused():
    with pytest.raises(ValueError, match=r"`image_size` to leave at least one latent cell, but got \(64, 32\)"):
        BagNet(num_classes=2, image_size=(64, 32))
