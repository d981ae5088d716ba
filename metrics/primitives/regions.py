"""Regions of maps: the pixels above a quantile or above half the range, and which maps have none."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from protometry.metrics.primitives.checks import check_maps, check_quantile, check_threshold, check_values

_FLATNESS = 1e-5  # bicubic upsampling of a constant float32 map leaves a relative ripple of about 2e-6


def value_range(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Minimum and maximum of each ``(..., H, W)`` map, ``(...)`` float64."""
    return maps.amin(dim=(-2, -1)).double(), maps.amax(dim=(-2, -1)).double()


def clipped_range(name: str, saliency: Tensor) -> tuple[Tensor, Tensor]:
    """The :func:`value_range` of clipped maps.

    Refuses negative values as :func:`~protometry.metrics.primitives.checks.check_values` does. Maps that are positive
    everywhere pass: they may be clipped at 0, although not by :func:`clip_saliency`.
    """
    low, high = value_range(saliency)
    check_values(
        ~low.isfinite() | (low >= 0),
        f"Expected argument `{name}` to be clipped, but got negative values. Pass it through `clip_saliency`, or give "
        f"the metric a `quantile`.",
    )
    return low, high


def is_flat(low: Tensor, high: Tensor) -> Tensor:
    """Whether maps of this :func:`value_range` are flat, ``max - min <= 1e-5 max |v|``, or not finite; bool."""
    # written so that a map with NaN or infinity is flat too: every comparison with it is False
    return ~(high - low > _FLATNESS * torch.maximum(low.abs(), high.abs()))


def all_finite(values: Tensor, dim: int | tuple[int, ...] = (-2, -1)) -> Tensor:
    """Whether the values along ``dim``, by default of each ``(..., H, W)`` map, are finite throughout; bool."""
    return (values - values).sum(dim=dim) == 0  # 0 where a value is finite and NaN elsewhere, several times faster


def count_pixels(masks: Tensor) -> Tensor:
    """Number of True pixels of each ``(..., H, W)`` mask, ``(...)`` float64."""
    return masks.view(torch.uint8).sum(dim=(-2, -1), dtype=torch.int32).double()  # bool to int64 is many times slower


def _cutoff(maps: Tensor, quantile: float) -> Tensor:
    """The value above which a pixel is in the region, ``(..., 1, 1)``; infinity for flat maps.

    The quantile lies between two neighbours of the sorted map, so that "strictly above it" selects what lies above the
    lower neighbour; interpolating could only add a rounding error.
    """
    check_quantile(quantile)
    check_maps("maps", maps)
    pixels = maps.flatten(start_dim=-2)
    below = math.floor(quantile * (pixels.shape[-1] - 1) + 1e-9)  # 1e-9: a whole number must survive the product
    neighbour = pixels.topk(pixels.shape[-1] - below, dim=-1, sorted=False).values.amin(dim=-1)
    return neighbour.masked_fill(is_flat(*value_range(maps)), torch.inf)[..., None, None]


def percentile_mask(maps: Tensor, quantile: float = 0.95) -> Tensor:
    """The pixels strictly above a quantile of their own map.

    Source: Schlinge et al. (2025), section 5.1. The quantile interpolates linearly and is taken per map. A flat map,
    ``max - min <= 1e-5 max |v|``, and one that is not finite have an empty region.

    Args:
        maps: ``(..., H, W)`` float.
        quantile: in (0, 1).

    Returns:
        ``(..., H, W)`` bool.

    Example:
        >>> percentile_mask(torch.arange(1.0, 21.0).view(4, 5)).nonzero()  # the quantile is 19.05
        tensor([[3, 4]])
    """
    return maps > _cutoff(maps, quantile)


def clip_saliency(saliency: Tensor, quantile: float | None = 0.95) -> Tensor:
    """Keep the positive values strictly above a quantile of their own map.

    Source: Schlinge et al. (2025), section 5.1: ``max(v, 0)`` inside :func:`percentile_mask`, 0 elsewhere. Clip once
    per map and share the result: the quantile of a clipped map is another one.

    Args:
        saliency: ``(..., H, W)`` float, signed.
        quantile: in (0, 1); None for saliency that is clipped already and stays as it is.

    Returns:
        ``(..., H, W)`` of the same dtype, >= 0; all 0 for a map that is flat or not finite.

    Example:
        >>> clip_saliency(torch.tensor([[1.0, 2.0], [3.0, -4.0]]), quantile=0.5)  # the quantile is 1.5
        tensor([[0., 2.],
                [3., 0.]])
    """
    if quantile is None:
        return saliency
    return torch.where(saliency > _cutoff(saliency, quantile).clamp(min=0), saliency, 0)


def binarize_maps(maps: Tensor, threshold: float = 0.5) -> Tensor:
    """The cells whose min-max scaled value is strictly above a threshold.

    Source: Schlinge et al. (2025), equation 9: ``(v - min) / (max - min) > threshold``, per map, compared in float64. A
    map that is flat (see :func:`percentile_mask`) or not finite has an empty region.

    Args:
        maps: ``(..., h, w)`` float.
        threshold: in [0, 1).

    Returns:
        ``(..., h, w)`` bool.

    Example:
        >>> binarize_maps(torch.tensor([[0.0, 1.0], [0.6, 0.5]]))
        tensor([[False,  True],
                [ True, False]])
    """
    check_threshold(threshold)
    check_maps("maps", maps)
    low, high = value_range(maps)
    above = maps - low[..., None, None] > (threshold * (high - low))[..., None, None]
    return above & ~is_flat(low, high)[..., None, None]
