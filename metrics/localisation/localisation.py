"""Localisation of the object by saliency: peak, positive relevance and most relevant region."""

from __future__ import annotations

import torch
from torch import Tensor

from metrics.base import ImageMean
from metrics.entry import MetricEntry, Words
from metrics.primitives.checks import check_saliency
from metrics.primitives.intersection_over_union import mask_intersection_over_union
from metrics.primitives.peaks import peak_cells
from metrics.primitives.regions import is_flat, percentile_mask, value_range


def _undefined(saliency: Tensor, object_masks: Tensor) -> Tensor:
    """``(B, k)`` bool: a flat, all-negative or non-finite map, or an object that is empty or fills the image."""
    low, high = value_range(saliency)
    pixels = object_masks.flatten(1)
    return is_flat(low, high) | (high <= 0) | (~pixels.any(dim=1) | pixels.all(dim=1))[:, None]


def pointing_game(saliency: Tensor, object_masks: Tensor) -> Tensor:
    """Whether the peak of an explanation lies in the object.

    Source: Zhang et al. (2018), without their tolerance of some pixels. Ties go to the first pixel in row-major order.
    Chance level: the object's share of the image.

    Args:
        saliency: ``(B, k, H, W)`` float, signed.
        object_masks: ``(B, H, W)`` bool.

    Returns:
        ``(B, k)`` float64, 1 or 0, higher is better; NaN for a map that is flat, nowhere positive or not finite, and
        for an object that is empty or fills the image.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> saliency = torch.tensor([[[[1.0, 3.0, 0.0], [1.0, 0.0, -5.0]]]])
        >>> pointing_game(saliency, torch.tensor([[[True, False, False], [True, False, False]]]))
        tensor([[0.]], dtype=torch.float64)
    """
    check_saliency(saliency, object_masks)
    peaks = peak_cells(saliency)
    images = torch.arange(saliency.shape[0], device=saliency.device)[:, None]
    hits = object_masks[images, peaks[..., 1], peaks[..., 0]].double()
    return hits.masked_fill(_undefined(saliency, object_masks), torch.nan)


def energy_pointing_game(saliency: Tensor, object_masks: Tensor) -> Tensor:
    """Share of the positive relevance of an explanation that lies in the object.

    Source: Wang et al. (2020): ``Σ max(v, 0) inside / Σ max(v, 0)`` with v = ``saliency``. Chance level: the object's
    share of the image.

    Args:
        saliency: ``(B, k, H, W)`` float, signed.
        object_masks: ``(B, H, W)`` bool.

    Returns:
        ``(B, k)`` float64 fractions, higher is better; NaN for a map that is flat, nowhere positive or not finite, and
        for an object that is empty or fills the image.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> saliency = torch.tensor([[[[1.0, 3.0, 0.0], [1.0, 0.0, -5.0]]]])
        >>> energy_pointing_game(saliency, torch.tensor([[[True, False, False], [True, False, False]]]))
        tensor([[0.4000]], dtype=torch.float64)
    """
    check_saliency(saliency, object_masks)
    energy = saliency.double().clamp(min=0)
    inside = energy.masked_fill(~object_masks[:, None], 0).sum(dim=(-2, -1))
    outside = energy.masked_fill(object_masks[:, None], 0).sum(dim=(-2, -1))
    return (inside / (inside + outside)).masked_fill(_undefined(saliency, object_masks), torch.nan)


def region_intersection_over_union(saliency: Tensor, object_masks: Tensor, quantile: float = 0.95) -> Tensor:
    """Intersection over union of the most relevant pixels with the object.

    Source: none. The region is :func:`metrics.functional.percentile_mask`, strictly above the quantile of its own map.

    Args:
        saliency: ``(B, k, H, W)`` float, signed.
        object_masks: ``(B, H, W)`` bool.
        quantile: of each map, in (0, 1).

    Returns:
        ``(B, k)`` float64 fractions, higher is better; NaN for a map that is flat, nowhere positive or not finite, and
        for an object that is empty or fills the image.

    Raises:
        ValueError: if a shape or dtype differs from the above or ``quantile`` is outside (0, 1).

    Example:
        >>> saliency = torch.tensor([[[[1.0, 3.0, 0.0], [2.0, 0.0, -5.0]]]])  # two of six pixels are above 1
        >>> mask = torch.tensor([[[True, False, False], [True, False, False]]])
        >>> region_intersection_over_union(saliency, mask, quantile=0.6)
        tensor([[0.3333]], dtype=torch.float64)
    """
    check_saliency(saliency, object_masks)
    regions = percentile_mask(saliency, quantile)
    shares = mask_intersection_over_union(regions, object_masks[:, None].expand_as(regions)).double()
    return shares.masked_fill(_undefined(saliency, object_masks), torch.nan)


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

    unit = "fraction"
    value_range = (0.0, 1.0)
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

    unit = "fraction"
    value_range = (0.0, 1.0)
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

    unit = "fraction"
    value_range = (0.0, 1.0)
    higher_is_better = True

    def update(self, saliency: Tensor, object_masks: Tensor) -> None:
        """Add a batch."""
        self._accumulate(region_intersection_over_union(saliency.detach(), object_masks))


POINTING_GAME = MetricEntry(
    "localisation/pointing_game",
    PointingGame,
    Words(
        question="Does the strongest pixel lie on the object?",
        name="Pointing game",
        formula="share of maps whose peak lies on the object",
        source="[Z18]",
        misread="Chance is the object's share of the image. Without masks, the filled box is the object "
        "(`protocol.object`).",
    ),
    needs=("units", "object_mask|bounding_box"),  # any explainer will do: of units, or of the predicted class
    view="localisation",
)


ENERGY = MetricEntry(
    "localisation/energy",
    EnergyPointingGame,
    Words(
        question="How much of the relevance lies on the object?",
        name="Energy pointing game",
        formula="mean share of positive relevance on the object",
        source="[W20]",
        misread="Chance as above: a uniform map has it.",
    ),
    needs=("units", "object_mask|bounding_box"),
    view="localisation",
)


IOU = MetricEntry(
    "localisation/iou",
    RegionIntersectionOverUnion,
    Words(
        question="How well do the marked pixels cover the object?",
        name="Intersection over union",
        formula="mean IoU of the top 5 % of pixels with the object",
        source="none",
        misread="5 % of the pixels cannot cover a larger object: its best value is below 1.",
    ),
    needs=("units", "object_mask|bounding_box"),
    view="localisation",
)
