"""Boxes of cells against the centre of the gradients that cells have to an image, by brute force on whole networks."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from protometry.lightning_modules.backbones import build_backbone
from protometry.lightning_modules.backbones.receptive_field import redrawn
from protometry.metrics.functional import cell_boxes

OWN = {
    "patches": lambda: nn.Sequential(nn.Conv2d(3, 8, 10, stride=10), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)),
    "unpadded": lambda: nn.Sequential(nn.Conv2d(3, 8, 5, stride=3), nn.ReLU(), nn.Conv2d(8, 8, 4, stride=4)),
    "one side padded": lambda: nn.Sequential(nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(3, 8, 3, 2), nn.AvgPool2d(4)),
    "parallel": lambda: Parallel(),
}
NO_MARGIN = ("vit_tiny", "eva02", "bagnet")  # take one size only, or nothing beyond the border
MIXING = ("vit", "deit", "eva", "swin", "pvt", "convnext", "edgenext", "mixer", "poolformer")  # weights of either sign


class Parallel(nn.Module):
    """Two ways to one grid whose centres differ by little, and a global gate."""

    def __init__(self):
        super().__init__()
        self.long = nn.Sequential(nn.Conv2d(3, 8, 7, 4, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1))
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 8, 1), nn.Sigmoid())

    def forward(self, images):
        features = self.long(images)
        return features * self.gate(features)


def backbone_of(name, size):
    torch.manual_seed(0)
    if name in OWN:
        return build_backbone(OWN[name](), size)
    name, _, strides = name.partition(" ")
    options = {"strides": int(strides) if strides.isdigit() else strides} if strides else {}
    return build_backbone({"name": name, **options}, size)


def positive(net):
    """A copy in which a pixel counts by the ways from it to a cell: weights are positive, and nothing is left out."""
    drawn = redrawn(net)
    for name, pool in [each for each in drawn.named_modules() if isinstance(each[1], nn.MaxPool2d)]:
        mean = nn.AvgPool2d(pool.kernel_size, pool.stride, pool.padding, pool.ceil_mode)
        drawn.get_submodule(name.rpartition(".")[0]).register_module(name.rpartition(".")[2], mean)
    for module in drawn.modules():
        for name, parameter in module.named_parameters(recurse=False):
            parameter.data = parameter.abs() / parameter[0].numel() ** 0.5 if parameter.dim() > 1 else parameter.abs()
            if name == "bias":
                parameter.data.zero_()
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.zero_()
            module.running_var.fill_(1)
    return drawn


def influence(name, net, size, rows, jump):
    """``(n, H)``: by how much the rows of an image count for the cells of some rows, and what lies before row 0.

    Convolutional networks are shown a larger image of the same alignment, whose borders cut no cell.
    """
    mixing = any(kind in name for kind in MIXING)
    before = 0 if any(kind in name for kind in NO_MARGIN) else math.ceil((128 if mixing else 224) / jump)
    margin = round(before * jump)
    profiles = 0
    for seed in range(2 if mixing else 1):
        torch.manual_seed(seed)
        image = torch.rand(1, 3, size[0] + 2 * margin, size[1]).requires_grad_()
        drawn = redrawn(net, image.detach()) if mixing else positive(net)
        features = drawn(image)[0]
        features = features[:, :, features.shape[2] // 2]
        gradients = []
        for row in rows:
            values = features[:, row + before]
            values = values * torch.randn_like(values) if mixing else values
            gradients.append(torch.autograd.grad(values.sum(), image, retain_graph=True)[0][0].double())
        found = torch.stack(gradients)
        profiles = profiles + (found.square() if mixing else found.abs()).sum(dim=(1, 3))
    return profiles, margin


def centre(profile, guess, reach):
    """The point about which a profile lies evenly, within a reach that the image does not cut."""
    fine = (profile - profile.min()).repeat_interleave(8)
    places, at = (torch.arange(len(fine)) + 0.5) / 8, guess
    for _ in range(100):
        near = (places - at).abs() < min(reach, at, len(profile) - at)
        at = float((places * fine)[near].sum() / fine[near].sum())
    return at


def errors(name, side):
    """Pixels between the centres of boxes and of gradients: of the geometry, and of tiles that share the image evenly.

    Over three rows whose boxes the border of the image does not cut.
    """
    size = (side, 64)
    backbone = backbone_of(name, size)
    geometry = backbone.geometry(size)
    jump = geometry.lines[0][1]
    cells = [[0, row] for row in range(geometry.grid[0])]
    kinds = [geometry.lattice, None]
    boxes, tiles = (cell_boxes(torch.tensor(cells), geometry.grid, size, kind).tolist() for kind in kinds)
    whole = [row for row, (_, y0, _, y1) in enumerate(boxes) if y1 + 1 - y0 >= jump - 1]
    rows = sorted({whole[0], whole[len(whole) // 2], whole[-1]})
    profiles, margin = influence(name, backbone.net, size, rows, jump)
    starts = [margin + (tiles[row][1] + tiles[row][3]) / 2 for row in rows]
    reach = min(margin, 128) if margin else jump
    if margin == 0:  # a patch, which all its pixels count for alike, or a field, whose weight lies to one side of it
        least = [0 if name.startswith("bagnet") else float(profile.max()) / 2 for profile in profiles]
        found = [float((each > low).nonzero().double().mean()) + 0.5 for each, low in zip(profiles, least, strict=True)]
    else:
        found = [centre(*each, reach) - margin for each in zip(profiles, starts, strict=True)]
    worst = [
        max(abs(at - (some[row][1] + some[row][3] + 1) / 2) for row, at in zip(rows, found, strict=True))
        for some in (boxes, tiles)
    ]
    return worst, geometry, found, rows


FEW = ["patches", "unpadded", "one side padded", "parallel", "sketch", "torchvision/resnet18"]


@pytest.mark.parametrize("name", FEW)
def test_a_box_lies_about_what_its_cell_reads(name):
    (worst, _), geometry, *_ = errors(name, 131)
    assert geometry.lattice is not None
    assert worst <= 1.5


def test_cells_are_found_while_gradients_are_off():
    with torch.inference_mode():
        geometry = backbone_of("parallel", (64, 64)).geometry((64, 64))
        assert geometry.is_located
        assert geometry.lines == ((0.5, 8.0), (0.5, 8.0))
