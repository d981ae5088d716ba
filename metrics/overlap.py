"""Overlap of clipped saliency with the object and with its background."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from metrics.base import ImageMean
from metrics.functional.overlap import background_overlap, inside_outside_relevance_difference, object_overlap
from metrics.functional.primitives.regions import clip_saliency


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
