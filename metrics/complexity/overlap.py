"""Overlap of clipped saliency with the object and with its background."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metrics.base import ImageMean
from metrics.entry import MetricEntry, Words
from metrics.primitives.checks import check_saliency
from metrics.primitives.chunks import image_chunks
from metrics.primitives.regions import clip_saliency, clipped_range, count_pixels


def _undefined(saliency: Tensor, object_masks: Tensor) -> Tensor:
    """``(B, k)`` bool, True for an empty region, an empty object or a map that is not finite."""
    low, high = clipped_range("saliency", saliency)
    positive_and_finite = (high > 0) & high.isfinite() & low.isfinite()
    return ~positive_and_finite | ~object_masks.flatten(1).any(dim=1)[:, None]


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

    Raises:
        ValueError: if a shape or dtype differs from the above or ``saliency`` is negative somewhere.

    Example:
        >>> saliency = torch.tensor([[[[4.0, 0.0], [0.0, 1.0]]]])
        >>> object_overlap(saliency, torch.tensor([[[True, False], [True, False]]]))
        tensor([[0.5000]], dtype=torch.float64)
    """
    check_saliency(saliency, object_masks)
    objects = object_masks[:, None]
    share = count_pixels((saliency > 0) & objects) / count_pixels(objects)
    return share.masked_fill(_undefined(saliency, object_masks), torch.nan)


def background_overlap(saliency: Tensor, object_masks: Tensor) -> Tensor:
    """Share of an explanation that lies on the background.

    Source: Schlinge et al. (2025), equation 19: ``1 - |v ∩ m| / |v|`` with v the pixels where ``saliency`` is positive
    and m the object.

    Args:
        saliency: ``(B, k, H, W)`` float >= 0, clipped.
        object_masks: ``(B, H, W)`` bool.

    Returns:
        ``(B, k)`` float64 fractions, lower is better; NaN for an empty region, an empty object or a map that is not
        finite.

    Raises:
        ValueError: if a shape or dtype differs from the above or ``saliency`` is negative somewhere.

    Example:
        >>> saliency = torch.tensor([[[[4.0, 2.0], [1.0, 1.0]]]])
        >>> background_overlap(saliency, torch.tensor([[[True, True], [True, False]]]))
        tensor([[0.2500]], dtype=torch.float64)
    """
    check_saliency(saliency, object_masks)
    region = saliency > 0
    share = 1 - count_pixels(region & object_masks[:, None]) / count_pixels(region)
    return share.masked_fill(_undefined(saliency, object_masks), torch.nan)


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

    Raises:
        ValueError: if a shape or dtype differs from the above or ``saliency`` is negative somewhere.

    Example:
        >>> saliency = torch.tensor([[[[4.0, 0.0], [2.0, 1.0]]]])  # (1 + 0.5) / 2 - 0.25
        >>> inside_outside_relevance_difference(saliency, torch.tensor([[[True, False], [True, False]]]))
        tensor([[0.5000]], dtype=torch.float64)
    """
    check_saliency(saliency, object_masks)
    undefined = _undefined(saliency, object_masks) | object_masks.flatten(1).all(dim=1)[:, None]
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


class OverlapMean(ImageMean):
    """Mean over images of a comparison of clipped saliency with the object; subclasses bring the kernel."""

    unit = "fraction"
    value_range = (0.0, 1.0)
    reads = ("saliency", "object_masks")

    def __init__(self, quantile: float | None = 0.95, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.quantile = quantile

    def _clip(self, saliency: Tensor) -> Tensor:
        saliency = saliency.detach()
        return saliency if self.quantile is None else clip_saliency(saliency, self.quantile)


class ObjectOverlap(OverlapMean):
    """Mean share of the object that an explanation covers (lower is better).

    Source: Schlinge et al. (2025), equation 16, after Wang et al.: ``|v ∩ m| / |m|`` with v the pixels where the
    clipped ``saliency`` is positive and m = ``object_masks``. Undefined for an empty region or object. Read it together
    with :class:`BackgroundOverlap`: a region wholly on the background scores 0, the best value.

    Args:
        quantile: of each map, above which positive saliency is kept; None if it is already clipped.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        saliency: ``(B, k, H, W)`` float.
        object_masks: ``(B, H, W)`` bool.

    Example:
        >>> import torch
        >>> metric = ObjectOverlap(quantile=None)
        >>> metric.update(torch.tensor([[[[4.0, 0.0], [0.0, 1.0]]]]), torch.tensor([[[True, False], [True, False]]]))
        >>> metric.compute()  # one of the two pixels of the object
        tensor(0.5000, dtype=torch.float64)
    """

    name = "object_overlap"
    higher_is_better = False

    def update(self, saliency: Tensor, object_masks: Tensor) -> None:
        """Add a batch."""
        self._accumulate(object_overlap(self._clip(saliency), object_masks))


class BackgroundOverlap(OverlapMean):
    """Mean share of an explanation that lies on the background (lower is better).

    Source: Schlinge et al. (2025), equation 19: ``1 - |v ∩ m| / |v|`` with v the pixels where the clipped ``saliency``
    is positive and m = ``object_masks``. Undefined for an empty region or object.

    Args:
        quantile: of each map, above which positive saliency is kept; None if it is already clipped.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        saliency: ``(B, k, H, W)`` float.
        object_masks: ``(B, H, W)`` bool.

    Example:
        >>> import torch
        >>> metric = BackgroundOverlap(quantile=None)
        >>> metric.update(torch.tensor([[[[4.0, 2.0], [1.0, 1.0]]]]), torch.tensor([[[True, True], [True, False]]]))
        >>> metric.compute()  # one of the four pixels of the region
        tensor(0.2500, dtype=torch.float64)
    """

    name = "background_overlap"
    higher_is_better = False

    def update(self, saliency: Tensor, object_masks: Tensor) -> None:
        """Add a batch."""
        self._accumulate(background_overlap(self._clip(saliency), object_masks))


class InsideOutsideRelevanceDifference(OverlapMean):
    """Mean difference of the relevance inside and outside the object (IORD, higher is better).

    Source: Schlinge et al. (2025), equation 17, after Wang et al.: ``mean of v inside m - mean of v outside m``, over
    the pixels where v, the clipped ``saliency`` divided by its maximum, is not 0, and with m = ``object_masks``. A side
    without such a pixel contributes 0. Undefined for an empty region and for an object that is empty or fills the
    image.

    Args:
        quantile: of each map, above which positive saliency is kept; None if it is already clipped.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        saliency: ``(B, k, H, W)`` float.
        object_masks: ``(B, H, W)`` bool.

    Example:
        >>> import torch
        >>> metric = InsideOutsideRelevanceDifference(quantile=None)
        >>> metric.update(torch.tensor([[[[4.0, 0.0], [2.0, 1.0]]]]), torch.tensor([[[True, False], [True, False]]]))
        >>> metric.compute()  # (4/4 + 2/4) / 2 - 1/4
        tensor(0.5000, dtype=torch.float64)
    """

    name = "iord"
    unit = "[-1, 1]"
    value_range = (-1.0, 1.0)
    higher_is_better = True

    def update(self, saliency: Tensor, object_masks: Tensor) -> None:
        """Add a batch."""
        self._accumulate(inside_outside_relevance_difference(self._clip(saliency), object_masks))


OBJECT_OVERLAP = MetricEntry(
    "complexity/object_overlap",
    ObjectOverlap,
    Words(
        question="How much of the object is marked?",
        name="Object overlap",
        formula="mean share of the object that the top 5 % of relevance cover",
        source="[S25] 16, [W23]",
        misread="0 is best and is what a map on the background has: never without `background_overlap`.",
    ),
    lambda facts: ObjectOverlap(quantile=None),
    needs=("explainer", "object_mask"),
    view="clipped",
)
BACKGROUND_OVERLAP = MetricEntry(
    "complexity/background_overlap",
    BackgroundOverlap,
    Words(
        question="How much of what is marked is background?",
        name="Background overlap",
        formula="mean share of the top 5 % of relevance outside the object",
        source="[S25] 19",
        misread="Chance is the background's share of the image, which crops change.",
    ),
    lambda facts: BackgroundOverlap(quantile=None),
    needs=("explainer", "object_mask"),
    view="clipped",
)
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
