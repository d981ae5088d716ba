"""Kernels: localisation of the object by saliency, the control that human studies report next to their answers."""

from __future__ import annotations

import torch
from torch import Tensor

from metrics.functional.primitives.checks import check_saliency
from metrics.functional.primitives.intersection_over_union import mask_intersection_over_union
from metrics.functional.primitives.peaks import peak_cells
from metrics.functional.primitives.regions import is_flat, percentile_mask, value_range


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
