"""Intersection over union of the most relevant pixels with the object."""

from __future__ import annotations

import torch
from torch import Tensor

from protometry.metrics.base import ImageMean
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.localisation.pointing_game import nothing_to_localise
from protometry.metrics.primitives.checks import check_saliency
from protometry.metrics.primitives.intersection_over_union import mask_intersection_over_union
from protometry.metrics.primitives.regions import percentile_mask


def region_intersection_over_union(saliency: Tensor, object_masks: Tensor, quantile: float = 0.95) -> Tensor:
    """Intersection over union of the most relevant pixels with the object.

    Source: none: ``|r ∩ m| / |r ∪ m|`` with m = ``object_masks`` and r =
    :func:`protometry.metrics.functional.percentile_mask`, the pixels strictly above the quantile of their own map.
    Shapes and where it is NaN as for :func:`protometry.metrics.functional.pointing_game`.

    Example:
        >>> saliency = torch.tensor([[[[1.0, 3.0, 0.0], [2.0, 0.0, -5.0]]]])  # two of six pixels are above 1
        >>> mask = torch.tensor([[[True, False, False], [True, False, False]]])
        >>> region_intersection_over_union(saliency, mask, quantile=0.6)
        tensor([[0.3333]], dtype=torch.float64)
    """
    check_saliency(saliency, object_masks)
    regions = percentile_mask(saliency, quantile)
    shares = mask_intersection_over_union(regions, object_masks[:, None].expand_as(regions)).double()
    return shares.masked_fill(nothing_to_localise(saliency, object_masks), torch.nan)


class RegionIntersectionOverUnion(ImageMean):
    """Mean intersection over union of the most relevant 5 % of pixels with the object (higher is better)."""

    unit = "fraction"
    higher_is_better = True

    def update(self, saliency: Tensor, object_masks: Tensor) -> None:
        self._accumulate(region_intersection_over_union(saliency.detach(), object_masks))


IOU = MetricEntry(
    "localisation/iou",
    RegionIntersectionOverUnion,
    Words(
        question="How well do the marked pixels cover the object?",
        name="Intersection over union",
        formula="mean IoU of the top 5 % of pixels with the object",
        source="none",
        misread="5 % of the pixels cannot cover a larger object, so the maximum is below 1.",
    ),
    needs=("units", "object_mask|bounding_box"),
    view="localisation",
)
