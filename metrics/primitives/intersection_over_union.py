"""Intersection over union of boxes, of masks and of non-negative values."""

from __future__ import annotations

import torch
from torch import Tensor

from protometry.metrics.primitives.checks import check_last_axis
from protometry.metrics.primitives.regions import count_pixels


def _share(intersection: Tensor, union: Tensor, undefined: Tensor) -> Tensor:
    return (intersection.double() / union).masked_fill(undefined, torch.nan)


def box_intersection_over_union(boxes: Tensor, other: Tensor) -> Tensor:
    """Intersection over union of two boxes.

    Args:
        boxes: ``(..., 4)`` int64 inclusive pixels ``(x0, y0, x1, y1)``.
        other: the same, broadcast against ``boxes``.

    Returns:
        ``(...)`` float64 in [0, 1]; NaN where either box is empty.

    Example:
        >>> box_intersection_over_union(torch.tensor([0, 0, 1, 1]), torch.tensor([1, 1, 2, 2]))
        tensor(0.1429, dtype=torch.float64)
    """
    check_last_axis("boxes", boxes, 4)
    check_last_axis("other", other, 4)

    def area(first: Tensor, last: Tensor) -> Tensor:
        return (last - first + 1).clamp(min=0).prod(dim=-1)

    area_one, area_other = area(boxes[..., :2], boxes[..., 2:]), area(other[..., :2], other[..., 2:])
    shared = area(torch.maximum(boxes[..., :2], other[..., :2]), torch.minimum(boxes[..., 2:], other[..., 2:]))
    return _share(shared, area_one + area_other - shared, (area_one == 0) | (area_other == 0))


def mask_intersection_over_union(masks: Tensor, other: Tensor) -> Tensor:
    """Intersection over union of two masks.

    Args:
        masks: ``(..., H, W)`` bool.
        other: the same, broadcast against ``masks``.

    Returns:
        ``(...)`` float64 in [0, 1]; NaN where either mask is empty.

    Example:
        >>> mask_intersection_over_union(torch.tensor([[True, True]]), torch.tensor([[False, True]]))
        tensor(0.5000, dtype=torch.float64)
    """
    if masks.dtype != torch.bool or other.dtype != torch.bool:
        raise ValueError(f"Expected arguments `masks`, `other` to be bool, but got {masks.dtype} and {other.dtype}.")
    area_one, area_other, shared = count_pixels(masks), count_pixels(other), count_pixels(masks & other)
    return _share(shared, area_one + area_other - shared, (area_one == 0) | (area_other == 0))


def weighted_intersection_over_union(values: Tensor, other: Tensor) -> Tensor:
    """Ratio of the sum of elementwise minima to the sum of maxima.

    Source: the ratio in equations 7, 10 and 11 of Schlinge et al. (2025), known as Ruzicka similarity.

    Args:
        values: ``(..., n)`` float.
        other: the same shape.

    Returns:
        ``(...)`` float64, like the sums, in [0, 1] for values >= 0; NaN if the maxima sum to 0 or one is not finite.

    Example:
        >>> weighted_intersection_over_union(torch.tensor([4.0, 2.0]), torch.tensor([1.0, 1.0]))
        tensor(0.3333, dtype=torch.float64)
    """
    if values.shape != other.shape:
        raise ValueError(
            f"Expected argument `other` to be of shape {tuple(values.shape)}, but got {tuple(other.shape)}."
        )
    smaller = torch.minimum(values, other).sum(dim=-1, dtype=torch.float64)
    larger = torch.maximum(values, other).sum(dim=-1, dtype=torch.float64)
    return _share(smaller, larger, (larger == 0) | ~smaller.isfinite() | ~larger.isfinite())
