"""Difference of the relevance inside and outside the object (IORD)."""

from __future__ import annotations

import torch
from torch import Tensor

from protometry.metrics.complexity.overlap import OverlapMean, undefined_overlap
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_saliency
from protometry.metrics.primitives.chunks import image_chunks
from protometry.metrics.primitives.regions import count_pixels


def inside_outside_relevance_difference(saliency: Tensor, object_masks: Tensor) -> Tensor:
    """Mean relevance inside the object minus mean relevance outside.

    Source: Schlinge et al. (2025), equation 17, after Wang et al. Means are over the non-zero pixels of ``saliency``
    divided by its maximum, summed in float64; a side without any contributes 0.

    Args:
        saliency: ``(B, k, H, W)`` float >= 0, clipped.
        object_masks: ``(B, H, W)`` bool.

    Returns:
        ``(B, k)`` float64 in [-1, 1], higher is better; NaN for a map without a positive pixel or not finite, and for
        an object that is empty or fills the image.

    Example:
        >>> saliency = torch.tensor([[[[4.0, 0.0], [2.0, 1.0]]]])  # (1 + 0.5) / 2 - 0.25
        >>> inside_outside_relevance_difference(saliency, torch.tensor([[[True, False], [True, False]]]))
        tensor([[0.5000]], dtype=torch.float64)
    """
    check_saliency(saliency, object_masks)
    undefined = undefined_overlap(saliency, object_masks) | object_masks.flatten(1).all(dim=1)[:, None]
    difference = torch.cat([_relevance_difference(*chunk) for chunk in image_chunks(saliency, object_masks)])
    return difference.masked_fill(undefined, torch.nan)


def _relevance_difference(saliency: Tensor, object_masks: Tensor) -> Tensor:
    saliency = saliency.double()
    relevance = saliency / saliency.amax(dim=(-2, -1), keepdim=True)
    inside, outside = object_masks[:, None], ~object_masks[:, None]
    return _mean_of_non_zero(relevance, inside) - _mean_of_non_zero(relevance, outside)


def _mean_of_non_zero(relevance: Tensor, side: Tensor) -> Tensor:
    chosen = side & (relevance != 0)
    return relevance.masked_fill(~chosen, 0).sum(dim=(-2, -1)) / count_pixels(chosen).clamp(min=1)


class InsideOutsideRelevanceDifference(OverlapMean):
    """Mean difference of the relevance inside and outside the object (IORD, higher is better)."""

    unit = "[-1, 1]"
    value_range = (-1.0, 1.0)
    higher_is_better = True
    kernel = staticmethod(inside_outside_relevance_difference)


IORD = MetricEntry(
    "complexity/iord",
    InsideOutsideRelevanceDifference,
    Words(
        question="Is the object marked more strongly than the background?",
        name="Inside-outside relevance difference",
        formula="mean relevance inside − outside the object, of non-zero pixels divided by the maximum",
        source="[S25] 17",
        misread="It compares strength, not amount: one strong pixel inside and a whole map outside give a good value.",
    ),
    lambda facts: InsideOutsideRelevanceDifference(quantile=None),
    needs=("explainer", "object_mask"),
    view="clipped",
)
