"""How far apart the units of one image look: the location changes of a perturbation, between units instead."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from protometry.metrics.base import ImageMean
from protometry.metrics.change.prototype_location_change import finite_peaks
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_tensor
from protometry.metrics.primitives.intersection_over_union import mask_intersection_over_union
from protometry.metrics.primitives.regions import binarize_maps


def _pairs(values: Tensor) -> tuple[Tensor, Tensor]:
    """Both sides of the k (k - 1) / 2 pairs of units, ``(B, k, ...)`` to ``(B, pairs, ...)`` each."""
    first, second = torch.triu_indices(values.shape[1], values.shape[1], offset=1, device=values.device)
    return values.index_select(1, first), values.index_select(1, second)


def prototype_location_contrast(maps: Tensor) -> Tensor:
    """Mean distance of the peaks of the units of one image, in cells along both axes.

    Source: Schlinge et al. (2025), section 5.3: :func:`protometry.metrics.functional.prototype_location_change` between
    units instead of images, mean over the pairs. A flat map has its peak at the first cell.

    Args:
        maps: ``(B, k, h, w)`` float.

    Returns:
        ``(B,)`` float64 >= 0, higher is better; NaN without a pair of finite maps.

    Example:
        >>> prototype_location_contrast(torch.eye(4).view(1, 4, 2, 2))  # peaks at the corners of a square
        tensor([1.3333], dtype=torch.float64)
    """
    check_tensor("maps", maps, ("B", "k", "h", "w"), "float")
    first, second = _pairs(finite_peaks(maps))
    return (first - second).abs().sum(dim=-1).nanmean(dim=1)


def prototype_activation_location_contrast(maps: Tensor, threshold: float = 0.5) -> Tensor:
    """Mean dissimilarity of the active regions of the units of one image.

    Source: Schlinge et al. (2025), section 5.3:
    :func:`protometry.metrics.functional.prototype_activation_location_change` between units instead of images, mean
    over the pairs in which neither map is flat.

    Args:
        maps: ``(B, k, h, w)`` float.
        threshold: in [0, 1), of the min-max scaled map.

    Returns:
        ``(B,)`` float64 in [0, 1], higher is better; NaN without such a pair.

    Example:
        >>> maps = torch.tensor([[[[1.0, 1.0, 0.0]], [[0.0, 1.0, 0.0]]]])
        >>> prototype_activation_location_contrast(maps)  # one cell of two in common
        tensor([0.5000], dtype=torch.float64)
    """
    check_tensor("maps", maps, ("B", "k", "h", "w"), "float")
    return (1 - mask_intersection_over_union(*_pairs(binarize_maps(maps, threshold)))).nanmean(dim=1)


class PrototypeLocationContrast(ImageMean):
    """Mean distance between the peaks of the top-k units of an image (higher is better)."""

    unit = "cells"
    higher_is_better = True

    def update(self, maps: Tensor) -> None:
        self._accumulate(prototype_location_contrast(maps))


class PrototypeActivationLocationContrast(ImageMean):
    """Mean dissimilarity of the active regions of the top-k units of an image (higher is better)."""

    unit = "fraction"
    higher_is_better = True

    def __init__(self, threshold: float = 0.5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.threshold = threshold

    def update(self, maps: Tensor) -> None:
        self._accumulate(prototype_activation_location_contrast(maps, self.threshold))


LOCATION_CONTRAST = MetricEntry(
    "contrastivity/plc",
    PrototypeLocationContrast,
    Words(
        question="How far apart are the peaks of the units of one image?",
        name="Prototype location contrast",
        formula="mean distance of the peaks of two of the top-5 units of an image",
        source="[S25] 5.3",
        misread="Here a large distance is good, and no perturbation is involved. Prototypes on different patches of "
        "sky score well.",
    ),
    needs=("two_units",),
)

ACTIVATION_LOCATION_CONTRAST = MetricEntry(
    "contrastivity/palc",
    PrototypeActivationLocationContrast,
    Words(
        question="How different are the regions of the units of one image?",
        name="Prototype activation location contrast",
        formula="mean of 1 − IoU of the active cells of two of the top-5 units",
        source="[S25] 5.3",
        misread="Maps of single cells score 100 %, whatever these cells show.",
    ),
    needs=("two_units",),
)
