"""How explanations share the image between the object and its background."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from metrics.functional.overlap import background_overlap, inside_outside_relevance_difference, object_overlap
from metrics.functional.primitives.regions import clip_saliency
from metrics.image_mean import ImageMean


class OverlapMean(ImageMean):
    """Mean over images of a comparison of saliency with the object, of which subclasses bring the kernel."""

    unit = "fraction"
    reads = ("saliency", "object_masks")

    def __init__(self, quantile: float | None = 0.95, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.quantile = quantile

    def _clip(self, saliency: Tensor) -> Tensor:
        saliency = saliency.detach()
        return saliency if self.quantile is None else clip_saliency(saliency, self.quantile)


class ObjectOverlap(OverlapMean):
    """Mean share of the object that an explanation covers.

    Source and definition: :func:`metrics.functional.object_overlap`. Interval: normal over images.

    Args:
        quantile: of each map, above which positive saliency is kept; None if it is already clipped.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Example:
        >>> import torch
        >>> metric = ObjectOverlap(quantile=None)
        >>> metric.update(torch.tensor([[[[4.0, 0.0], [0.0, 1.0]]]]), torch.tensor([[[True, False], [True, False]]]))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    name = "object_overlap"
    higher_is_better = False

    def update(self, saliency: Tensor, object_masks: Tensor) -> None:
        """Add a batch.

        Args:
            saliency: ``(B, k, H, W)`` float.
            object_masks: ``(B, H, W)`` bool.
        """
        self._accumulate(object_overlap(self._clip(saliency), object_masks))


class BackgroundOverlap(OverlapMean):
    """Mean share of an explanation that lies on the background.

    Source and definition: :func:`metrics.functional.background_overlap`. Interval: normal over images.

    Args:
        quantile: of each map, above which positive saliency is kept; None if it is already clipped.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Example:
        >>> import torch
        >>> metric = BackgroundOverlap(quantile=None)
        >>> metric.update(torch.tensor([[[[4.0, 2.0], [1.0, 1.0]]]]), torch.tensor([[[True, True], [True, False]]]))
        >>> metric.compute()
        tensor(0.2500, dtype=torch.float64)
    """

    name = "background_overlap"
    higher_is_better = False

    def update(self, saliency: Tensor, object_masks: Tensor) -> None:
        """Add a batch.

        Args:
            saliency: ``(B, k, H, W)`` float.
            object_masks: ``(B, H, W)`` bool.
        """
        self._accumulate(background_overlap(self._clip(saliency), object_masks))


class InsideOutsideRelevanceDifference(OverlapMean):
    """Mean difference of relevance inside and outside the object.

    Source and definition: :func:`metrics.functional.inside_outside_relevance_difference`. Interval: normal over
    images.

    Args:
        quantile: of each map, above which positive saliency is kept; None if it is already clipped.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Example:
        >>> import torch
        >>> metric = InsideOutsideRelevanceDifference(quantile=None)
        >>> metric.update(torch.tensor([[[[4.0, 0.0], [2.0, 1.0]]]]), torch.tensor([[[True, False], [True, False]]]))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    name = "iord"
    unit = "[-1, 1]"
    higher_is_better = True

    def update(self, saliency: Tensor, object_masks: Tensor) -> None:
        """Add a batch.

        Args:
            saliency: ``(B, k, H, W)`` float.
            object_masks: ``(B, H, W)`` bool.
        """
        self._accumulate(inside_outside_relevance_difference(self._clip(saliency), object_masks))
