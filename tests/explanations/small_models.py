"""Models small enough to know by hand what an explainer must say of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from protometry.lightning_modules.bases.geometry import Geometry, Layer
from protometry.lightning_modules.contract import ModelOutput, UnitTable


class MeanPooled(nn.Module):
    """Any backbone, mean over cells, linear head with bias; units are the channels of the backbone.

    Args:
        backbone: maps images to a latent.
        weight: ``(K, D)``.
        bias: ``(K,)``.
        layers: of the backbone, for the geometry.
        size: ``(H, W)``.
    """

    def __init__(
        self,
        backbone: nn.Module,
        weight: Tensor,
        bias: Tensor | None = None,
        layers: tuple[Layer, ...] = (),
        size: tuple[int, int] = (4, 6),
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.zeros(len(weight)) if bias is None else bias)
        self.geometry = Geometry.of(layers, size)
        self.input_std = torch.ones(3, 1, 1)
        self.has_latent = True
        self.eval()

    def scored(self, latent: Tensor) -> Tensor:
        return latent.mean((2, 3))

    def forward(self, images: Tensor) -> ModelOutput:
        latent = self.backbone(images)
        scores = self.scored(latent)
        logits = scores @ self.weight.T + self.bias
        return ModelOutput(logits, scores, latent, latent if self.has_latent else None, {"pooled": scores * 1})

    def units(self) -> UnitTable:
        active = torch.ones(self.weight.shape[1], dtype=torch.bool)
        return UnitTable("feature", active, self.weight.T > 0, "mean", self.weight)


class CellReader(MeanPooled):
    """Every unit is one cell of the first channel: what it depends on is the receptive field of that cell."""

    def scored(self, latent: Tensor) -> Tensor:
        return latent[:, 0].flatten(1)


class Weighted(nn.Module):
    """A linear backbone that weighs every value by its own number: ``(3, H, W)``."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, images: Tensor) -> Tensor:
        return images * self.weight


def rand(*shape: int, seed: int = 0) -> Tensor:
    """Seeded uniform numbers."""
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def randn(*shape: int, seed: int = 0) -> Tensor:
    """Seeded normal numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
