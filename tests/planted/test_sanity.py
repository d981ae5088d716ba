"""Planted truth of the sanity metrics: maps that rank what a unit reads, and maps that owe something to a backbone."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from protometry.explanations import Upsample
from tests.planted.models import ColourUnits, Planted, measure
from tests.planted.scenes import CLASSES, NEUTRAL, SIZE, birds, painted, scenes

IMAGES, STEPS = 8, 8


def sanity(explainer, model=None, names=("deletion", "insertion")):
    samples = [{**scene, "image": painted(scene)} for scene in scenes()[:IMAGES]]
    keys = [f"sanity/{name}" for name in names]
    return measure(keys, model or ColourUnits(), samples, birds(), explainer)


class PartlyTrained(Planted):
    """Maps that are a mean of weights of the backbone and of others, whatever the image.

    Args:
        share: of the weights of the backbone.
    """

    def __init__(self, share):
        owner = torch.ones(CLASSES, CLASSES, dtype=torch.bool)
        super().__init__(torch.eye(CLASSES), owner)
        generator = torch.Generator().manual_seed(1)
        own, other = math.sqrt(2) / SIZE * torch.randn(2, CLASSES, SIZE**2, generator=generator)  # fan-in SIZE²
        self.share, self.backbone, self.other = share, nn.Parameter(own), other

    def maps(self, latent):
        maps = self.share * self.backbone + (1 - self.share) * self.other
        return maps.view(1, -1, SIZE, SIZE).expand(len(latent), -1, -1, -1)

    def parameter_groups(self):
        return super().parameter_groups() | {"backbone": [self.backbone]}


def test_the_less_a_map_owes_to_the_backbone_the_less_randomisation_moves_it():
    """The ranks of normal values with correlation r have a correlation of 6/π asin(r/2)."""
    names, similar = ("randomised_rank_correlation", "randomised_ssim"), []
    for share in (0, 0.25, 0.5, 0.75, 1):
        metrics = sanity(Upsample(), PartlyTrained(share), names).metrics
        r = (1 - share) ** 2 / ((1 - share) ** 2 + share**2)
        error = (1 - r * r) / SIZE / math.sqrt(CLASSES)
        rank, ssim = (metrics[f"sanity/{name}"] for name in names)
        assert abs(rank["value"] - 6 / math.pi * math.asin(r / 2)) <= 4 * error + 1e-9
        assert abs(rank["shifted"]) < 4 / SIZE / math.sqrt(CLASSES)
        similar.append(ssim["value"])
    assert similar == sorted(similar, reverse=True)
    assert similar[0] == pytest.approx(1)
    assert abs(similar[-1] - ssim["shifted"]) < 0.05


class FourStages(Planted):
    """Maps that are a sum of the weights of four stages, the last of them times so much, whatever the image."""

    def __init__(self, last):
        super().__init__(torch.eye(CLASSES), torch.ones(CLASSES, CLASSES, dtype=torch.bool))
        torch.manual_seed(0)
        self.backbone = nn.Module()
        self.backbone.net = nn.Sequential(*(nn.Linear(SIZE**2, CLASSES, bias=False) for _ in range(4)))
        for stage in self.backbone.net:
            nn.init.normal_(stage.weight, std=math.sqrt(2) / SIZE)
        self.shares = (1, 1, 1, last)

    def maps(self, latent):
        parts = [share * stage.weight for share, stage in zip(self.shares, self.backbone.net, strict=True)]
        return sum(parts).view(1, -1, SIZE, SIZE).expand(len(latent), -1, -1, -1)

    def parameter_groups(self):
        return super().parameter_groups() | {"backbone": [*self.backbone.parameters()]}


def test_the_less_a_map_owes_to_the_last_stages_the_less_it_moves_without_them():
    """Maps before and after share the stages that keep their weights."""
    keys = [f"randomised_{name}{end}" for name in ("rank_correlation", "ssim") for end in ("", "@3", "@1")]
    for last in (0, 1, 3):
        metrics = sanity(Upsample(), FourStages(last), keys).metrics
        squares = 3 + last * last
        for end, kept in (("", 0), ("@3", 1), ("@1", 3)):
            r = kept / squares
            error = (1 - r * r) / SIZE / math.sqrt(CLASSES)
            value = metrics[f"sanity/randomised_rank_correlation{end}"]["value"]
            assert abs(value - 6 / math.pi * math.asin(r / 2)) <= 4 * error + 1e-9
        similar = [metrics[f"sanity/randomised_ssim{end}"]["value"] for end in ("", "@3", "@1")]
        assert similar == sorted(similar)


def test_a_model_without_a_backbone_cannot_be_randomised():
    skipped = sanity(Upsample(), names=("deletion", "randomised_ssim")).skipped
    assert skipped == {"sanity/randomised_ssim": "backbone: no parameter of the model is in a backbone group"}


class Near(Planted):
    """Contrast to grey: of one cell, mixed with that of the whole image.

    Args:
        share: of the whole image.
    """

    def __init__(self, share):
        super().__init__(torch.eye(3), torch.ones(3, 3, dtype=torch.bool), cell=8)
        self.share = share

    def maps(self, latent):
        contrast = (latent * self.input_std + NEUTRAL - 0.5).abs()
        gain = torch.zeros(64).index_fill_(0, torch.tensor(42), 1 - self.share).view(8, 8)
        return gain * F.avg_pool2d(contrast, 8) + self.share * contrast.mean(dim=(2, 3), keepdim=True)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_cell_stands_for_its_place_as_far_as_it_reads_no_other(share):
    """On a chessboard, whose mean is grey, each of 64 cells has a 64th of the contrast, and of its gradient."""
    board = (torch.arange(SIZE)[:, None] + torch.arange(SIZE)).remainder(2).expand(3, -1, -1) - 0.5
    keys = ["sanity/cell_alone", "sanity/gradient_inside"]
    samples = [{**scene, "image": 0.5 + board / (i + 1)} for i, scene in enumerate(scenes()[:IMAGES])]
    for entry in measure(keys, Near(share), samples, birds(), Upsample()).metrics.values():
        assert entry["value"] == pytest.approx(1 - share * 63 / 64)
        assert entry["shifted"] == pytest.approx(share / 64, abs=1e-6)
