"""Small backbones, and BatchNorm statistics that are not the identity, for the tests of relevance propagation."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from protometry.explanations.relevance.recorder import record
from protometry.explanations.relevance.tape import Tape
from protometry.lightning_modules import ProtoPNet
from protometry.lightning_modules.bases.geometry import Geometry
from protometry.lightning_modules.contract import ModelOutput, UnitTable


def moved_statistics(module: nn.Module, seed: int = 0) -> nn.Module:
    """Give every BatchNorm random statistics and parameters, some factors negative; returns the module in eval mode."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.running_mean.normal_(0, 0.2, generator=generator)
                layer.running_var.uniform_(0.5, 1.5, generator=generator)
                layer.weight.uniform_(0.5, 1.5, generator=generator)
                layer.weight[::7] *= -1
                layer.bias.normal_(0, 0.2, generator=generator)
    return module.eval()


def protopnet(backbone: str, side: int = 64, **options: Any) -> ProtoPNet:
    """A ProtoPNet with moved statistics."""
    torch.manual_seed(0)
    model = ProtoPNet(
        num_classes=3, image_size=(side, side), backbone={"name": backbone}, prototypes_per_class=2, **options
    )
    moved_statistics(model)
    return model


class UnitReader(nn.Module):
    """A backbone and units about which everything is said from outside: scores are the pool of the given maps."""

    def __init__(
        self,
        backbone: nn.Module,
        channels: int,
        vectors: Tensor | None = None,
        pool: Literal["max", "mean", "focal"] = "max",
        comparison: Literal["distance", "projection"] = "distance",
        size: tuple[int, int] = (8, 8),
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.vectors = vectors
        units = channels if vectors is None else len(vectors)
        self.weight = nn.Parameter(torch.linspace(-1, 1, 2 * units).view(2, units))
        self.pool, self.comparison = pool, comparison
        self.geometry = Geometry(size, size, 1, 1, 0.5)
        self.input_std = torch.ones(3, 1, 1)
        self.eval()

    def forward(self, images: Tensor) -> ModelOutput:
        latent = self.backbone(images)
        maps = latent if self.vectors is None else torch.einsum("bdhw,ud...->buhw", latent, self.vectors)
        scores = maps.mean((2, 3)) if self.pool == "mean" else maps.amax((2, 3))
        return ModelOutput(scores @ self.weight.T, scores, maps, latent)

    def units(self) -> UnitTable:
        active = torch.ones(self.weight.shape[1], dtype=torch.bool)
        owner = self.weight.T > 0
        return UnitTable("feature", active, owner, self.pool, self.weight, self.vectors, comparison=self.comparison)

    def contributions(self, output: ModelOutput, classes: Tensor) -> Tensor:
        return self.weight[classes] * output.scores


class DenseBlock(nn.Module):
    """Two layers of [BatchNorm, ReLU, convolution], each reading the concatenation of all before."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.first = nn.Sequential(nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3, padding=1))
        self.second = nn.Sequential(nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 4, 1))
        self.pool = nn.AvgPool2d(2, ceil_mode=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = torch.cat([x, self.first(x)], 1)
        return self.pool(torch.cat([x, self.second(x)], 1).relu())


class Residual(nn.Module):
    """An activation in place and a sum in place, as torchvision's blocks have them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, stride=2, padding=1, bias=False)
        self.body = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.stem(x))
        out = self.body(x)
        out += x
        return self.relu(out)


def taped(backbone: nn.Module, images: Tensor, **options: Any) -> tuple[Tensor, Tape]:
    """The latent of a backbone and how it came about."""
    with torch.no_grad():
        channels = backbone.eval()(images).shape[1]
    reader = UnitReader(backbone, channels)
    output, tape = record(reader, images, **options)
    assert output.latent is not None
    assert tape is not None
    tape.model = reader  # a tape does not keep its model alive
    return output.latent, tape
