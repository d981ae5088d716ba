"""Change of the highlighted regions of units under a perturbation (VLC)."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from protometry.metrics.base import ImageMean
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.boxes import bounding_boxes
from protometry.metrics.primitives.checks import check_choice, check_tensor
from protometry.metrics.primitives.intersection_over_union import (
    box_intersection_over_union,
    mask_intersection_over_union,
)
from protometry.metrics.primitives.regions import clip_saliency, clipped_range

Region = Literal["box", "mask"]


def visualization_location_change(saliency: Tensor, perturbed_saliency: Tensor, region: Region = "box") -> Tensor:
    """Change of the highlighted region of each unit, or of the box around it.

    Source: Schlinge et al. (2025), equation 4, after Sacha et al. (2024): 1 - IoU. The region is where the clipped
    saliency (:func:`~protometry.metrics.functional.clip_saliency`) is positive.

    Args:
        saliency: ``(B, k, H, W)`` float >= 0, clipped.
        perturbed_saliency: ``(B, k, H, W)`` float >= 0, of the same units on the perturbed image, clipped.
        region: compare the boxes around the regions, or the regions (``"mask"``).

    Returns:
        ``(B, k)`` float64 in [0, 1], lower is better; NaN where a region is empty or a map is not finite.

    Example:
        >>> saliency = torch.eye(3)[None, None]
        >>> perturbed = torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])[None, None]
        >>> visualization_location_change(saliency, perturbed)  # one pixel of a box of nine
        tensor([[0.8889]], dtype=torch.float64)
        >>> visualization_location_change(saliency, perturbed, region="mask")
        tensor([[0.6667]], dtype=torch.float64)
    """
    check_choice("region", region, get_args(Region))
    check_tensor("saliency", saliency, ("B", "k", "H", "W"), "float")
    check_tensor("perturbed_saliency", perturbed_saliency, tuple(saliency.shape), "float")
    masks, other = saliency > 0, perturbed_saliency > 0
    if region == "box":
        shared = box_intersection_over_union(bounding_boxes(masks), bounding_boxes(other))
    else:
        shared = mask_intersection_over_union(masks, other)
    ranges = clipped_range("saliency", saliency), clipped_range("perturbed_saliency", perturbed_saliency)
    finite, other_finite = (low.isfinite() & high.isfinite() for low, high in ranges)
    return (1 - shared).masked_fill(~(finite & other_finite), torch.nan)


class VisualizationLocationChange(ImageMean):
    """Mean :func:`visualization_location_change` of the top-k units, once clipped (VLC, lower is better).

    Args:
        quantile: of each map, above which positive saliency is kept; None if the inputs are clipped already.
    """

    unit = "fraction"
    higher_is_better = False

    def __init__(self, quantile: float | None = 0.95, region: Region = "box", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.quantile = quantile
        self.region: Region = region

    def update(self, saliency: Tensor, perturbed_saliency: Tensor, valid: Tensor | None = None) -> None:
        saliency = clip_saliency(saliency, self.quantile)
        perturbed_saliency = clip_saliency(perturbed_saliency, self.quantile)
        self._accumulate(visualization_location_change(saliency, perturbed_saliency, self.region), valid)


VLC = MetricEntry(
    "completeness/vlc",
    VisualizationLocationChange,
    Words(
        question="How far does the box around what a unit saw most of move?",
        name="Visualization location change",
        formula="mean of 1 − IoU(b, b′), the boxes around the top 5 % of relevance, without and with noise outside b",
        source="[S25] 4, [S24]",
        misread="It measures the explainer as much as the model; an explainer that ignores the image scores 0.",
    ),
    lambda facts: VisualizationLocationChange(quantile=None),
    needs=("explainer",),
    view="completeness",
)
