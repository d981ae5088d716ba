"""Intersection over union of boxes, of masks and of non-negative values."""

from __future__ import annotations

import torch
from torch import Tensor

from protometry.metrics.primitives.checks import check_last_axis, check_tensor
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


def places(overlaps: Tensor, threshold: float = 0.5) -> Tensor:
    """For each region, the first one before it that is the same place.

    In the order given, a region is a place of its own unless its intersection over union with an earlier place exceeds
    ``threshold``; then it belongs to the first such place. All regions of a place thus overlap with the first one, the
    one that is drawn, which connected components would not guarantee: there, a chain of regions is one place although
    its ends may lie far apart.

    Args:
        overlaps: ``(B, k, k)`` float intersection over union of the regions of an image, in the order of their
            importance; NaN where either is empty.
        threshold: in [0, 1).

    Returns:
        ``(B, k)`` int64, the index of the region that stands for the place, at most its own; -1 for an empty region.

    Example:
        >>> overlaps = torch.tensor([[[1.0, 0.6, 0.2], [0.6, 1.0, 0.6], [0.2, 0.6, 1.0]]])
        >>> places(overlaps)  # the third is near the second, but the second is not a place of its own
        tensor([[0, 0, 2]])
    """
    check_tensor("overlaps", overlaps, ("B", overlaps.shape[-1], overlaps.shape[-1]), "float")
    near, has_region = overlaps > threshold, overlaps.diagonal(dim1=1, dim2=2).isfinite()
    first = torch.arange(overlaps.shape[1], device=overlaps.device).expand_as(has_region).masked_fill(~has_region, -1)
    for index in range(1, overlaps.shape[1]):  # each depends on those before it
        earlier = near[:, index, :index] & (first[:, :index] == torch.arange(index, device=first.device))
        of_another = torch.where(earlier.any(dim=1), earlier.int().argmax(dim=1), first[:, index])
        first = torch.cat([first[:, :index], of_another[:, None], first[:, index + 1 :]], dim=1)
    return first
