"""Distance by which the peaks of units move under a perturbation (PLC)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from protometry.metrics.base import ImageMean
from protometry.metrics.change.both_perturbations import both_perturbations
from protometry.metrics.entry import Words
from protometry.metrics.primitives.checks import check_tensor
from protometry.metrics.primitives.peaks import peak_cells
from protometry.metrics.primitives.regions import all_finite


def finite_peaks(maps: Tensor) -> Tensor:
    """Peak cells of ``(B, k, h, w)`` maps as ``(B, k, 2)`` float64; NaN where a map is not finite."""
    return peak_cells(maps).double().masked_fill(~all_finite(maps)[..., None], torch.nan)


def prototype_location_change(maps: Tensor, perturbed_maps: Tensor, relative: bool = False) -> Tensor:
    """Distance by which the peak of each map moves, in cells along both axes.

    Source: Schlinge et al. (2025), equation 8: ``|x - x'| + |y - y'|`` between the peak cells. Ties go to the first
    cell in row-major order, which is also the peak of a flat map.

    Args:
        maps: ``(B, k, h, w)`` float.
        perturbed_maps: ``(B, k, h, w)`` float, of the same units on the perturbed image.
        relative: divide by ``(h - 1) + (w - 1)``, so that grids of different size compare.

    Returns:
        ``(B, k)`` float64 >= 0, lower is better; NaN where a map is not finite.
    """
    check_tensor("maps", maps, ("B", "k", "h", "w"), "float")
    check_tensor("perturbed_maps", perturbed_maps, tuple(maps.shape), "float")
    distance = (finite_peaks(maps) - finite_peaks(perturbed_maps)).abs().sum(dim=-1)
    return distance / (maps.shape[2] + maps.shape[3] - 2) if relative else distance


class PrototypeLocationChange(ImageMean):
    """Mean :func:`prototype_location_change` of the top-k units (PLC, lower is better).

    Example:
        >>> metric = PrototypeLocationChange()
        >>> maps = torch.tensor([[[[0.0, 2.0, 0.0], [0.0, 0.0, 0.0]]]])
        >>> metric.update(maps, maps.flip(-1, -2))  # one row down
        >>> metric.compute()
        tensor(1., dtype=torch.float64)
    """

    unit = "cells"
    higher_is_better = False

    def __init__(self, relative: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.relative = relative
        self.unit = "fraction" if relative else "cells"
        self.value_range = (0.0, 1.0 if relative else math.inf)

    def update(self, maps: Tensor, perturbed_maps: Tensor, valid: Tensor | None = None) -> None:
        self._accumulate(prototype_location_change(maps, perturbed_maps, self.relative), valid)


PLC = both_perturbations(
    "plc",
    PrototypeLocationChange,
    Words(
        question="How many cells does the peak of a unit move?",
        name="Prototype location change",
        formula="mean distance abs(x − x′) + abs(y − y′) of the peaks, with noise outside the unit's region",
        source="[S25] 8",
        misread="In cells of the grid: not comparable between models with different grids. Not the `plc` of "
        "contrastivity or misalignment.",
    ),
    formula="as in completeness, between the image and its photometric perturbation",
    misread="Here the whole image changes, in completeness only the rest of it: not comparable.",
)
