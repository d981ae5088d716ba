"""Input normalisation, the first layer of every backbone."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from protometry.lightning_modules.backbones.libraries import IMAGENET

Normalization = Literal["imagenet", "none"] | dict[str, list[float]]

_STATISTICS = {
    "imagenet": IMAGENET,
    "none": {"mean": [0.0, 0.0, 0.0], "std": [1.0, 1.0, 1.0]},
}


class Normalize(nn.Module):
    """Subtract the mean and divide by the standard deviation of each channel.

    Args:
        normalization: ``"imagenet"`` (the statistics of torchvision's weights), ``"none"``, or
            ``{"mean": [r, g, b], "std": [r, g, b]}`` for RGB in [0, 1].

    Raises:
        ValueError: if the statistics are not three finite means and three finite standard deviations > 0.

    Example:
        >>> Normalize({"mean": [0.5, 0.5, 0.5], "std": [2.0, 2.0, 2.0]})(torch.ones(1, 3, 1, 1)).flatten()
        tensor([0.2500, 0.2500, 0.2500])
    """

    mean: Tensor
    std: Tensor

    def __init__(self, normalization: Normalization = "imagenet") -> None:
        super().__init__()
        mean, std = _statistics(normalization)
        # not persistent: the statistics come back with the init arguments, and torchvision's files do not hold them
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(3, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Normalised images ``(B, 3, H, W)`` of RGB in [0, 1]."""
        return (images - self.mean) / self.std


def _statistics(normalization: Normalization) -> tuple[list[float], list[float]]:
    statistics: Any = _STATISTICS.get(normalization) if isinstance(normalization, str) else normalization
    if isinstance(statistics, dict) and statistics.keys() == {"mean", "std"}:
        mean, std = statistics["mean"], statistics["std"]
        if len(mean) == len(std) == 3 and all(map(math.isfinite, [*mean, *std])) and min(std) > 0:
            return mean, std
    raise ValueError(
        "Expected argument `normalization` to be 'imagenet', 'none' or {'mean': [r, g, b], 'std': [r, g, b]} with "
        f"std > 0, but got {normalization!r}."
    )
