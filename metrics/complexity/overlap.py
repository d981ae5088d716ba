"""Overlap of clipped saliency with the object and with its background, which have to be read together."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from protometry.metrics.base import ImageMean
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_saliency
from protometry.metrics.primitives.regions import clip_saliency, clipped_range, count_pixels


def undefined_overlap(saliency: Tensor, object_masks: Tensor) -> Tensor:
    """``(B, k)`` bool, True for an empty region, an empty object or a map that is not finite."""
    low, high = clipped_range("saliency", saliency)
    positive_and_finite = (high > 0) & high.isfinite() & low.isfinite()
    return ~positive_and_finite | ~object_masks.flatten(1).any(dim=1)[:, None]


class OverlapMean(ImageMean):
    """Mean over images of a comparison of clipped saliency with the object.

    Args:
        quantile: of each map, above which positive saliency is kept; None if it is already clipped.

    Attributes:
        kernel: ``(B, k)`` values of a subclass from clipped saliency and masks.
    """

    unit = "fraction"
    kernel: staticmethod[[Tensor, Tensor], Tensor]

    def __init__(self, quantile: float | None = 0.95, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.quantile = quantile

    def update(self, saliency: Tensor, object_masks: Tensor) -> None:
        self._accumulate(self.kernel(clip_saliency(saliency.detach(), self.quantile), object_masks))


def object_overlap(saliency: Tensor, object_masks: Tensor) -> Tensor:
    """Share of the object that an explanation covers.

    Source: Schlinge et al. (2025), equation 16, after Wang et al.: ``|v ∩ m| / |m|`` with v the pixels where
    ``saliency`` is positive and m the object. Read it together with :func:`background_overlap`: a region
    wholly on the background scores 0, the best value.

    Args:
        saliency: ``(B, k, H, W)`` float >= 0, clipped.
        object_masks: ``(B, H, W)`` bool.

    Returns:
        ``(B, k)`` float64 fractions, lower is better; NaN for an empty region, an empty object or a map that is not
        finite.

    Example:
        >>> saliency = torch.tensor([[[[4.0, 0.0], [0.0, 1.0]]]])
        >>> object_overlap(saliency, torch.tensor([[[True, False], [True, False]]]))
        tensor([[0.5000]], dtype=torch.float64)
    """
    check_saliency(saliency, object_masks)
    objects = object_masks[:, None]
    share = count_pixels((saliency > 0) & objects) / count_pixels(objects)
    return share.masked_fill(undefined_overlap(saliency, object_masks), torch.nan)


class ObjectOverlap(OverlapMean):
    """Mean share of the object that an explanation covers, see :func:`object_overlap` (lower is better)."""

    higher_is_better = False
    kernel = staticmethod(object_overlap)


OBJECT_OVERLAP = MetricEntry(
    "complexity/object_overlap",
    ObjectOverlap,
    Words(
        question="How much of the object is marked?",
        name="Object overlap",
        formula="mean share of the object covered by the top 5 % of relevance",
        source="[S25] 16, [W23]",
        misread="A map on the background scores 0, the best value: never read it without `background_overlap`.",
    ),
    lambda facts: ObjectOverlap(quantile=None),
    needs=("explainer", "object_mask"),
    view="clipped",
)


def background_overlap(saliency: Tensor, object_masks: Tensor) -> Tensor:
    """Share of an explanation that lies on the background.

    Source: Schlinge et al. (2025), equation 19: ``1 - |v ∩ m| / |v|`` with v and m, arguments, result and errors as for
    :func:`object_overlap`.

    Example:
        >>> saliency = torch.tensor([[[[4.0, 2.0], [1.0, 1.0]]]])
        >>> background_overlap(saliency, torch.tensor([[[True, True], [True, False]]]))
        tensor([[0.2500]], dtype=torch.float64)
    """
    check_saliency(saliency, object_masks)
    region = saliency > 0
    share = 1 - count_pixels(region & object_masks[:, None]) / count_pixels(region)
    return share.masked_fill(undefined_overlap(saliency, object_masks), torch.nan)


class BackgroundOverlap(OverlapMean):
    """Mean share of an explanation that lies on the background, see :func:`background_overlap` (lower is better)."""

    higher_is_better = False
    kernel = staticmethod(background_overlap)


BACKGROUND_OVERLAP = MetricEntry(
    "complexity/background_overlap",
    BackgroundOverlap,
    Words(
        question="How much of what is marked is background?",
        name="Background overlap",
        formula="mean share of the top 5 % of relevance outside the object",
        source="[S25] 19",
        misread="Chance is the share of the background in the image, which depends on cropping.",
    ),
    lambda facts: BackgroundOverlap(quantile=None),
    needs=("explainer", "object_mask"),
    view="clipped",
)
