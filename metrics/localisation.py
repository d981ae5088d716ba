"""Localisation of the object by saliency: peak, positive relevance and most relevant region."""

from __future__ import annotations

from torch import Tensor

from metrics.base import ImageMean
from metrics.functional.localisation import energy_pointing_game, pointing_game, region_intersection_over_union


class PointingGame(ImageMean):
    """Share of explanations whose peak lies in the object (higher is better).

    Source: Zhang et al. (2018), without their tolerance of some pixels: ``1[argmax v in m]`` with v = ``saliency`` and
    m = ``object_masks``, ties to the first pixel in row-major order. Undefined for a map that is flat or nowhere
    positive, and for an object that is empty or fills the image. Chance level: the object's share of the image.

    Args:
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        saliency: ``(B, k, H, W)`` float, signed.
        object_masks: ``(B, H, W)`` bool.

    Example:
        >>> import torch
        >>> metric = PointingGame()
        >>> metric.update(torch.tensor([[[[1.0, 3.0]], [[4.0, 3.0]]]]), torch.tensor([[[True, False]]]))
        >>> metric.compute()  # the second of two units
        tensor(0.5000, dtype=torch.float64)
    """

    name = "pointing_game"
    unit = "fraction"
    value_range = (0.0, 1.0)
    reads = ("saliency", "object_masks")
    higher_is_better = True

    def update(self, saliency: Tensor, object_masks: Tensor) -> None:
        """Add a batch."""
        self._accumulate(pointing_game(saliency.detach(), object_masks))


class EnergyPointingGame(ImageMean):
    """Mean share of positive relevance that lies in the object (higher is better).

    Source: Wang et al. (2020): ``Σ max(v, 0) inside m / Σ max(v, 0)`` with v = ``saliency`` and m = ``object_masks``.
    Undefined for a map that is flat or nowhere positive, and for an object that is empty or fills the image. Chance
    level: the object's share of the image.

    Args:
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        saliency: ``(B, k, H, W)`` float, signed.
        object_masks: ``(B, H, W)`` bool.

    Example:
        >>> import torch
        >>> metric = EnergyPointingGame()
        >>> metric.update(torch.tensor([[[[1.0, 3.0, -2.0]]]]), torch.tensor([[[True, False, False]]]))
        >>> metric.compute()  # 1 / (1 + 3)
        tensor(0.2500, dtype=torch.float64)
    """

    name = "energy"
    unit = "fraction"
    value_range = (0.0, 1.0)
    reads = ("saliency", "object_masks")
    higher_is_better = True

    def update(self, saliency: Tensor, object_masks: Tensor) -> None:
        """Add a batch."""
        self._accumulate(energy_pointing_game(saliency.detach(), object_masks))


class RegionIntersectionOverUnion(ImageMean):
    """Mean intersection over union of the most relevant 5 % of pixels with the object (higher is better).

    Source: none; the overlap of :func:`metrics.functional.percentile_mask` with the object, ``|r ∩ m| / |r ∪ m|`` with
    r the pixels of ``saliency`` strictly above the 0.95 quantile of their map and m = ``object_masks``. Undefined for a
    map that is flat or nowhere positive, and for an object that is empty or fills the image.

    Args:
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        saliency: ``(B, k, H, W)`` float, signed.
        object_masks: ``(B, H, W)`` bool.

    Example:
        >>> import torch
        >>> metric = RegionIntersectionOverUnion()
        >>> metric.update(torch.tensor([[[[1.0, 3.0, -2.0]]]]), torch.tensor([[[True, True, False]]]))
        >>> metric.compute()  # the second pixel, one of the two of the object
        tensor(0.5000, dtype=torch.float64)
    """

    name = "iou"
    unit = "fraction"
    value_range = (0.0, 1.0)
    reads = ("saliency", "object_masks")
    higher_is_better = True

    def update(self, saliency: Tensor, object_masks: Tensor) -> None:
        """Add a batch."""
        self._accumulate(region_intersection_over_union(saliency.detach(), object_masks))
