"""Number of different places that the units of an image look at."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from protometry.metrics.base import ImageMean
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_tensor, check_threshold
from protometry.metrics.primitives.chunks import image_chunks
from protometry.metrics.primitives.intersection_over_union import mask_intersection_over_union, places
from protometry.metrics.primitives.regions import all_finite, clip_saliency, clipped_range


def distinct_regions(saliency: Tensor, threshold: float = 0.5) -> Tensor:
    """Number of different places that units look at.

    Source: ours, the number of :func:`.places` among the regions in which
    ``saliency`` is positive.

    Args:
        saliency: ``(B, k, H, W)`` float >= 0, clipped, of the units in the order of their importance.
        threshold: in [0, 1); regions whose intersection over union exceeds it are one place.

    Returns:
        ``(B,)`` float64 in [1, k], higher is better. Empty regions and maps that are not finite are not places; NaN
        without any place.

    Example:
        >>> same, other = torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[0.0, 0.0], [0.0, 3.0]])
        >>> distinct_regions(torch.stack([same, same, other])[None])
        tensor([2.], dtype=torch.float64)
    """
    check_tensor("saliency", saliency, ("B", "k", "H", "W"), "float")
    check_threshold(threshold)
    clipped_range("saliency", saliency)
    masks = (saliency > 0) & all_finite(saliency)[:, :, None, None]
    overlaps = [mask_intersection_over_union(part[:, :, None], part[:, None]) for (part,) in image_chunks(masks)]
    first = places(torch.cat(overlaps), threshold)
    counts = (first == torch.arange(first.shape[1], device=first.device)).sum(dim=1).double()
    return counts.masked_fill(counts == 0, torch.nan)


class DistinctRegions(ImageMean):
    """Mean number of different places that the top-k units look at (higher is better).

    Args:
        quantile: of each map, above which positive saliency is kept; None if it is already clipped.
    """

    unit = "count"
    value_range = (1.0, math.inf)
    higher_is_better = True

    def __init__(self, threshold: float = 0.5, quantile: float | None = 0.95, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.threshold = threshold
        self.quantile = quantile

    def update(self, saliency: Tensor) -> None:
        self._accumulate(distinct_regions(clip_saliency(saliency.detach(), self.quantile), self.threshold))


DISTINCT_REGIONS = MetricEntry(
    "compactness/distinct_regions",
    DistinctRegions,
    Words(
        question="At how many different places do the units of an image look?",
        name="Distinct regions",
        formula="mean number of the top-k units, from the largest score, whose top 5 % of relevance has an "
        "intersection over union ≤ 0.5 with the region of every unit counted before",
        source="ours",
        misread="The most is k. Different places need not be different parts, nor lie on the object, and noise "
        "rarely looks at the same place twice: random maps get 5 of 5. Read it with `background_overlap`. These are "
        "the units with the largest scores; an explanation shows those with the largest contributions.",
    ),
    lambda _: DistinctRegions(quantile=None),
    needs=("explainer",),
    view="clipped",
)
