"""Deformable ProtoPNet: what only this model has; everything common is in ``test_contract.py``."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from protometry.lightning_modules.deformable_protopnet import DeformableProtoPNet, on_sphere, sample

close = torch.testing.assert_close


def make(**options) -> DeformableProtoPNet:
    torch.manual_seed(0)
    small = {"num_classes": 3, "image_size": (32, 40), "prototypes_per_class": 2, "hidden": 6}
    return DeformableProtoPNet(**(small | options)).eval()


class Fixed(nn.Module):
    """In place of the layers that compute offsets: the same ``(P, (y, x))`` for every cell."""

    def __init__(self, offsets):
        super().__init__()
        self.values = torch.tensor(offsets).flatten()

    def forward(self, latent):
        return self.values.view(1, -1, 1, 1).expand(len(latent), -1, *latent.shape[2:])


class Given(nn.Module):
    """In place of a backbone: a latent."""

    def __init__(self, latent):
        super().__init__()
        self.latent = latent

    def forward(self, images):
        return self.latent


def see(model, latent):
    model.backbone = Given(latent)
    with torch.no_grad():
        return model(torch.zeros(len(latent), 3, 32, 40))


# -- from image to class ---------------------------------------------------------------------------------------------
def slow_cosine(latent, vectors, offsets, row, col, side, dilation):
    """Of one latent (D, h, w), one prototype (P, D), the offsets (P, 2) of one cell, by the formula."""
    height, width = latent.shape[1:]
    total = 0.0
    for part in range(side**2):
        y = row + dilation * (part // side - (side - 1) / 2) + offsets[part][0]
        x = col + dilation * (part % side - (side - 1) / 2) + offsets[part][1]
        y, x = min(max(y, -1), height), min(max(x, -1), width)
        found = [0.0] * (len(latent) + 1)
        for v in (math.floor(y), math.floor(y) + 1):
            for u in (math.floor(x), math.floor(x) + 1):
                inside = 0 <= v < height and 0 <= u < width
                cell = [*(latent[:, v, u].tolist() if inside else [0.0] * len(latent)), 1e-4]
                weight = (1 - abs(y - v)) * (1 - abs(x - u)) / sum(value**2 for value in cell)
                found = [old + weight * value**2 for old, value in zip(found, cell, strict=True)]
        prototype = [*vectors[part].tolist(), 1e-4]
        length = math.sqrt(sum(value**2 for value in prototype))
        total += sum(math.sqrt(a) * b for a, b in zip(found, prototype, strict=True)) / length / side**2
    return total


@pytest.mark.parametrize(("side", "dilation", "reach"), [(2, 2, 0), (2, 2, 3), (3, 1, 0), (3, 2, 8), (1, 1, 2)])
def test_maps_follow_the_formula(side, dilation, reach):
    """Without offsets, the convolution with all parts; with some, beyond the border too."""
    model = make(side=side, dilation=dilation)
    latent = torch.rand(2, 128, 4, 5)
    latent *= torch.rand(latent.shape) < 0.5  # as behind a ReLU
    latent[0, :, 1, 2] = 0  # a cell of zeros
    with torch.no_grad():
        unit = 64 / side * on_sphere(latent, 1)
        model.offsets[2].weight.mul_(reach / model.offsets(unit).abs().max())
        raw = model.offsets(unit).unflatten(1, (side**2, 2))
    output = see(model, latent)
    vectors = model.prototypes.vectors.detach().view(6, side**2, -1)
    for image, unit, row, col in [(0, 0, 0, 0), (0, 5, 1, 2), (0, 3, 2, 2), (1, 1, 3, 4), (1, 4, 1, 0), (1, 2, 2, 3)]:
        offsets = raw[image, :, :, row, col].tolist()
        expected = slow_cosine(latent[image], vectors[unit], offsets, row, col, side, dilation)
        actual = output.maps[image, unit, row, col].item()
        assert actual == pytest.approx(expected, abs=5e-5)  # roots of rounding errors of places
    close(output.scores, output.maps.amax((2, 3)))


def test_a_part_that_moved_is_found():
    """The four corners around a cell are in channels 0 to 3; the last has moved one cell to the right."""
    latent = torch.zeros(1, 96, 5, 6)
    for channel, (row, col) in enumerate([(1, 1), (1, 3), (3, 1), (3, 4)]):
        latent[0, channel, row, col] = 2.0
    model = make(backbone={"name": "sketch", "until": "block3"})
    with torch.no_grad():
        model.prototypes.vectors.zero_()
        model.prototypes.vectors.view(6, 4, 96)[0, range(4), range(4)] = 1.0
    moved = [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 1.0]]
    model.offsets = Fixed(torch.zeros(4, 2).tolist())
    still = see(model, latent)
    model.offsets = Fixed(moved)
    found = see(model, latent)
    assert still.scores[0, 0].item() == pytest.approx(0.75, abs=1e-3)
    assert found.scores[0, 0].item() == pytest.approx(1.0, abs=1e-3)
    assert found.maps[0, 0].argmax() == 2 * 6 + 2
    assert found.cells[0, 0].tolist() == [1 * 6 + 1, 1 * 6 + 3, 3 * 6 + 1, 3 * 6 + 4]


def test_cells_are_the_nearest():
    """Of the part up by 0.6 at row 1, row 0; of that right by 9, the last column; of the best cell (2, 3)."""
    model = make()
    model.offsets = Fixed([[-0.6, 0.4], [0.0, 9.0], [0.0, 0.0], [-9.0, -0.4]])
    maps = torch.zeros(1, 6, 4, 5)
    maps[:, :, 2, 3] = 1
    places = model.patches(torch.rand(1, 128, 4, 5))[1]
    assert model._cells(maps, places)[0, 4].tolist() == [0 * 5 + 2, 1 * 5 + 4, 3 * 5 + 2, 0 * 5 + 4]


@pytest.mark.parametrize("offsets", [[[0.0, 0.0]] * 4, [[0.3, -0.4], [1.2, 0.0], [-0.5, 0.5], [5.0, 0.25]]])
def test_a_patch_scores_one_where_it_was_found(offsets):
    """Between cells, beyond the border and where all is 0."""
    latent = torch.rand(1, 128, 4, 5, generator=torch.Generator().manual_seed(0)) * 20
    latent[:, :, 2, 2:] *= 1e-5  # hardly longer than channel ε
    latent[:, :, 1, 1] = 0
    model = make()
    model.offsets = Fixed(offsets)
    patches = model.patches(latent)[0].flatten(2)[0].T  # (20, 4·128)
    for cell in range(20):
        with torch.no_grad():
            model.prototypes.vectors[0] = patches[cell]
        assert see(model, latent).maps[0, 0].flatten()[cell].item() == pytest.approx(1, abs=1e-6)


def test_lengths_are_kept_and_gradients_finite():
    directions = on_sphere(torch.eye(4).view(1, 4, 2, 2), 1)  # each cell has one channel
    places = torch.tensor([[0.0, 0.0], [0.25, 0.5], [3.0, -1.0]]).view(1, 3, 1, 2).requires_grad_()
    found = sample(directions, places)
    close(found.norm(dim=1), torch.ones(1, 3, 1), atol=1e-4, rtol=0)
    found[:, :4].sum().backward()
    assert places.grad.isfinite().all()
    assert places.grad[0, 1].any()


# -- losses ----------------------------------------------------------------------------------------------------------
def test_the_margin_makes_prototypes_of_other_classes_nearer():
    """By the angles; prototypes of class 0 are 0 and 1, those nearer than the margin score 1."""
    model = make(margin=0.2)
    cosines = torch.tensor([[0.9, 0.1, 0.99, 0.5, -0.1, -0.5]])
    output = replace(see(model, torch.rand(1, 128, 4, 5)), extras={"distance": 1 - cosines})
    angles = [math.acos(value) - (0.2 if unit > 1 else 0) for unit, value in enumerate(cosines[0].tolist())]
    scores = torch.tensor([[max(math.cos(max(angle, 0)), 0) for angle in angles]])
    assert (scores[0, 2], scores[0, 5]) == (1, 0)
    assert scores[0, 4] > 0
    expected = F.cross_entropy(model.head(scores), torch.tensor([0]))
    close(model.loss_terms()["margin_cross_entropy"](output, {"label": torch.tensor([0])}), expected)


def test_orthogonality_is_within_a_class():
    """Two classes with the same two prototypes of orthogonal parts; one part twice within a class is a pair."""
    model = make(num_classes=2, side=2)
    parts = torch.eye(8, 128).repeat(2, 1)
    term = model.loss_terms()["part_orthogonality"]
    with torch.no_grad():
        model.prototypes.vectors.view(16, 128).copy_(parts)
        assert term(None, {}).item() == 0
        model.prototypes.vectors.view(16, 128)[9] = parts[15]
    assert term(None, {}).item() == pytest.approx(math.sqrt(2))


# -- plans and bad input ---------------------------------------------------------------------------------------------
def test_published_schedule():
    warm, backbone, joint, joint2, last = DeformableProtoPNet.presets["original"].phases
    assert [phase.epochs for phase in (warm, backbone, joint, joint2)] == [5, 5, 11, 10]
    assert warm.trainable == {"prototypes": 3e-3}
    assert backbone.trainable == {"prototypes": 3e-3, "backbone": 1e-4}
    assert joint.trainable == {"prototypes": 3e-3, "backbone": 1e-4, "offsets": 1e-4}
    assert joint2.goes_on_with(joint)
    assert last.rates == {"head": 0.0}


@pytest.mark.parametrize(("options", "message"), [
    ({"prototypes_per_class": 0}, "`prototypes_per_class` to be at least 1, but got 0"),
    ({"side": 0}, "`side` to be at least 1, but got 0"),
    ({"hidden": 0}, "`hidden` to be at least 1, but got 0"),
    ({"dilation": 3}, "`dilation` to be at least 1, and even if `side` is .2., .* but got 3"),
    ({"margin": 1.6}, "`margin` to be at least 0 and below π/2, but got 1.6"),
])  # fmt: skip
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)
