"""Where a map is high: regions, boxes, peaks and how much two of them share, defined once for metrics and pictures."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

_FLATNESS = 1e-5  # bicubic upsampling of a constant float32 map leaves a relative ripple of about 2e-6
_UPSAMPLED_ELEMENTS = 2**24  # upsampled pixels held at once: 64 MiB of float32


def _check_maps(name: str, maps: Tensor) -> None:
    if maps.ndim < 2 or not maps.is_floating_point() or 0 in maps.shape[-2:]:
        raise ValueError(
            f"Expected argument `{name}` to be of shape (..., H, W) and dtype float with at least one pixel, "
            f"but got {tuple(maps.shape)} {maps.dtype}."
        )


def _check_last(name: str, value: Tensor, size: int) -> None:
    if value.ndim < 1 or value.shape[-1] != size:
        raise ValueError(f"Expected argument `{name}` to be of shape (..., {size}), but got {tuple(value.shape)}.")


def _check_quantile(quantile: float | None) -> None:
    if quantile is not None and not 0 < quantile < 1:
        raise ValueError(f"Expected argument `quantile` to lie strictly between 0 and 1, but got {quantile}.")


def _check_threshold(threshold: float) -> None:
    if not 0 <= threshold < 1:
        raise ValueError(f"Expected argument `threshold` to lie in [0, 1), but got {threshold}.")


def _range(maps: Tensor) -> tuple[Tensor, Tensor]:
    return maps.amin(dim=(-2, -1)).double(), maps.amax(dim=(-2, -1)).double()


def _pixels(mask: Tensor) -> Tensor:
    """Number of True pixels over the last two axes, float64."""
    return mask.view(torch.uint8).sum(dim=(-2, -1), dtype=torch.int32).double()  # bool to int64 is many times slower


def _all_finite(maps: Tensor) -> Tensor:
    low, high = _range(maps)
    return low.isfinite() & high.isfinite()


def _is_flat(low: Tensor, high: Tensor) -> Tensor:
    # written so that a map with NaN or infinity is flat too: every comparison with it is False
    return ~(high - low > _FLATNESS * torch.maximum(low.abs(), high.abs()))


def _cutoff(maps: Tensor, quantile: float) -> Tensor:
    """The value above which a pixel is in the region, ``(..., 1, 1)``; infinity for flat maps.

    The quantile lies between two neighbours of the sorted map, so that "strictly above it" selects what lies above the
    lower neighbour; interpolating could only add a rounding error.
    """
    _check_quantile(quantile)
    _check_maps("maps", maps)
    pixels = maps.flatten(start_dim=-2)
    below = math.floor(quantile * (pixels.shape[-1] - 1) + 1e-9)  # 1e-9: a whole number must survive the product
    neighbour = pixels.topk(pixels.shape[-1] - below, dim=-1, sorted=False).values.amin(dim=-1)
    return neighbour.masked_fill(_is_flat(*_range(maps)), torch.inf)[..., None, None]


def percentile_mask(maps: Tensor, quantile: float = 0.95) -> Tensor:
    """The pixels strictly above a quantile of their own map.

    Source: Schlinge et al. (2025), section 5.1. The quantile interpolates linearly and is taken per map. A flat map,
    ``max - min <= 1e-5 max |v|``, and one that is not finite have an empty region.

    Args:
        maps: ``(..., H, W)`` float.
        quantile: in (0, 1).

    Returns:
        ``(..., H, W)`` bool.

    Raises:
        ValueError: if ``quantile`` is outside (0, 1) or ``maps`` has another shape or dtype.

    Example:
        >>> percentile_mask(torch.arange(1.0, 21.0).view(4, 5)).nonzero()  # the quantile is 19.05
        tensor([[3, 4]])
    """
    return maps > _cutoff(maps, quantile)


def clip_saliency(saliency: Tensor, quantile: float = 0.95) -> Tensor:
    """Keep the positive values strictly above a quantile of their own map.

    Source: Schlinge et al. (2025), section 5.1: ``max(v, 0)`` inside :func:`percentile_mask`, 0 elsewhere. Clip once
    per map and share the result: the quantile of a clipped map is another one.

    Args:
        saliency: ``(..., H, W)`` float, signed.
        quantile: in (0, 1).

    Returns:
        ``(..., H, W)`` of the same dtype, >= 0; all 0 for a map that is flat or not finite.

    Raises:
        ValueError: if ``quantile`` is outside (0, 1) or ``saliency`` has another shape or dtype.

    Example:
        >>> clip_saliency(torch.tensor([[1.0, 2.0], [3.0, -4.0]]), quantile=0.5)  # the quantile is 1.5
        tensor([[0., 2.],
                [3., 0.]])
    """
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

    Raises:
        ValueError: if ``threshold`` is outside [0, 1) or ``maps`` has another shape or dtype.

    Example:
        >>> binarize_maps(torch.tensor([[0.0, 1.0], [0.6, 0.5]]))
        tensor([[False,  True],
                [ True, False]])
    """
    _check_threshold(threshold)
    _check_maps("maps", maps)
    low, high = _range(maps)
    above = maps - low[..., None, None] > (threshold * (high - low))[..., None, None]
    return above & ~_is_flat(low, high)[..., None, None]


def bounding_boxes(masks: Tensor) -> Tensor:
    """The tight box around each mask.

    Args:
        masks: ``(..., H, W)`` bool.

    Returns:
        ``(..., 4)`` int64 inclusive pixels ``(x0, y0, x1, y1)``; ``(0, 0, -1, -1)`` for an empty mask.

    Raises:
        ValueError: if ``masks`` has another shape or dtype.

    Example:
        >>> bounding_boxes(torch.tensor([[False, False, False], [False, True, True]]))
        tensor([1, 1, 2, 1])
    """
    if masks.ndim < 2 or masks.dtype != torch.bool or 0 in masks.shape[-2:]:
        raise ValueError(
            "Expected argument `masks` to be of shape (..., H, W) and dtype bool with at least one pixel, "
            f"but got {tuple(masks.shape)} {masks.dtype}."
        )
    pixels = masks.view(torch.uint8)  # its maximum is an order of magnitude faster than `any` of bool
    columns, rows = pixels.amax(dim=-2), pixels.amax(dim=-1)
    first = torch.stack([columns.argmax(dim=-1), rows.argmax(dim=-1)], dim=-1)
    after = torch.stack([columns.flip(-1).argmax(dim=-1), rows.flip(-1).argmax(dim=-1)], dim=-1)
    last = torch.tensor([masks.shape[-1] - 1, masks.shape[-2] - 1], device=masks.device) - after
    empty = rows.amax(dim=-1, keepdim=True) == 0
    return torch.cat([first, last.masked_fill(empty, -1)], dim=-1)


def _shares(intersection: Tensor, union: Tensor, undefined: Tensor) -> Tensor:
    return (intersection.double() / union).masked_fill(undefined, torch.nan)


def box_intersection_over_union(boxes: Tensor, other: Tensor) -> Tensor:
    """How much two boxes share.

    Args:
        boxes: ``(..., 4)`` int64 inclusive pixels ``(x0, y0, x1, y1)``.
        other: the same, broadcast against ``boxes``.

    Returns:
        ``(...)`` float64 in [0, 1]; NaN where either box is empty.

    Raises:
        ValueError: if the last axis is not 4.

    Example:
        >>> box_intersection_over_union(torch.tensor([0, 0, 1, 1]), torch.tensor([1, 1, 2, 2]))
        tensor(0.1429, dtype=torch.float64)
    """
    _check_last("boxes", boxes, 4)
    _check_last("other", other, 4)

    def area(first: Tensor, last: Tensor) -> Tensor:
        return (last - first + 1).clamp(min=0).prod(dim=-1)

    area_one, area_other = area(boxes[..., :2], boxes[..., 2:]), area(other[..., :2], other[..., 2:])
    shared = area(torch.maximum(boxes[..., :2], other[..., :2]), torch.minimum(boxes[..., 2:], other[..., 2:]))
    return _shares(shared, area_one + area_other - shared, (area_one == 0) | (area_other == 0))


def mask_intersection_over_union(masks: Tensor, other: Tensor) -> Tensor:
    """How much two masks share.

    Args:
        masks: ``(..., H, W)`` bool.
        other: the same, broadcast against ``masks``.

    Returns:
        ``(...)`` float64 in [0, 1]; NaN where either mask is empty.

    Raises:
        ValueError: if a dtype differs from the above.

    Example:
        >>> mask_intersection_over_union(torch.tensor([[True, True]]), torch.tensor([[False, True]]))
        tensor(0.5000, dtype=torch.float64)
    """
    if masks.dtype != torch.bool or other.dtype != torch.bool:
        raise ValueError(f"Expected arguments `masks`, `other` to be bool, but got {masks.dtype} and {other.dtype}.")
    area_one, area_other, shared = _pixels(masks), _pixels(other), _pixels(masks & other)
    return _shares(shared, area_one + area_other - shared, (area_one == 0) | (area_other == 0))


def weighted_intersection_over_union(values: Tensor, other: Tensor) -> Tensor:
    """How much two sets of values share: the sum of their minima over the sum of their maxima.

    Source: the ratio in equations 7, 10 and 11 of Schlinge et al. (2025), also known as Ruzicka similarity.

    Args:
        values: ``(..., n)`` float.
        other: the same shape.

    Returns:
        ``(...)`` float64, like the sums, in [0, 1] for values >= 0; NaN if the maxima sum to 0 or one is not finite.

    Raises:
        ValueError: if the shapes differ.

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
    return _shares(smaller, larger, (larger == 0) | ~smaller.isfinite() | ~larger.isfinite())


def points_in_boxes(points: Tensor, boxes: Tensor) -> Tensor:
    """Which points lie in which boxes: ``x0 <= floor(x) <= x1`` and ``y0 <= floor(y) <= y1``.

    Args:
        points: ``(B, N, 2)`` float pixels (x, y).
        boxes: ``(B, k, 4)`` int64 inclusive pixels ``(x0, y0, x1, y1)``.

    Returns:
        ``(B, k, N)`` bool.

    Raises:
        ValueError: if a shape differs from the above.

    Example:
        >>> points_in_boxes(torch.tensor([[[2.0, 1.0], [4.9, 3.2], [5.0, 3.0]]]), torch.tensor([[[2, 1, 4, 3]]]))
        tensor([[[ True,  True, False]]])
    """
    if points.ndim != 3 or boxes.ndim != 3 or len(points) != len(boxes):
        raise ValueError(
            "Expected arguments `points`, `boxes` to be of shapes (B, N, 2) and (B, k, 4), "
            f"but got {tuple(points.shape)} and {tuple(boxes.shape)}."
        )
    _check_last("points", points, 2)
    _check_last("boxes", boxes, 4)
    pixels, corners = points.floor()[:, None], boxes[:, :, None]
    return ((pixels >= corners[..., :2]) & (pixels <= corners[..., 2:])).all(dim=-1)


def peak_cells(maps: Tensor) -> Tensor:
    """The cell of each map's maximum, ties to the first in row-major order.

    Args:
        maps: ``(..., h, w)`` float.

    Returns:
        ``(..., 2)`` int64 (x, y); (0, 0) for a map that is flat (see :func:`percentile_mask`) or not finite.

    Raises:
        ValueError: if ``maps`` has another shape or dtype.

    Example:
        >>> peak_cells(torch.tensor([[0.0, 2.0, 2.0], [2.0, 0.0, 0.0]]))
        tensor([1, 0])
    """
    _check_maps("maps", maps)
    index = maps.flatten(start_dim=-2).argmax(dim=-1).masked_fill(_is_flat(*_range(maps)), 0)
    return torch.stack([index % maps.shape[-1], index // maps.shape[-1]], dim=-1)


def peak_locations(maps: Tensor, image_size: tuple[int, int], mode: str = "bicubic") -> Tensor:
    """The pixel of each map's maximum after upsampling to the image.

    Corners are not aligned. Maps are upsampled in chunks of at most 64 MiB.

    Args:
        maps: ``(..., h, w)`` float.
        image_size: ``(H, W)`` pixels.
        mode: ``"bicubic"`` or ``"bilinear"``.

    Returns:
        ``(..., 2)`` int64 pixels (x, y); (0, 0) for a map that is flat (see :func:`percentile_mask`) or not finite.

    Raises:
        ValueError: if ``mode`` is unknown or ``maps`` has another shape or dtype.

    Example:
        >>> peak_locations(torch.tensor([[0.0, 0.0], [0.0, 1.0]]), (8, 8), mode="bilinear")
        tensor([6, 6])
    """
    if mode not in ("bicubic", "bilinear"):
        raise ValueError(f"Expected argument `mode` to be 'bicubic' or 'bilinear', but got {mode!r}.")
    _check_maps("maps", maps)
    cells = maps.reshape(-1, 1, *maps.shape[-2:])
    cells = cells if cells.dtype == torch.float64 else cells.float()
    peaks = [
        peak_cells(F.interpolate(chunk, image_size, mode=mode, align_corners=False))
        for chunk in torch.split(cells, max(1, _UPSAMPLED_ELEMENTS // math.prod(image_size)))
    ]
    return torch.cat(peaks).view(*maps.shape[:-2], 2)


def window_boxes(peaks: Tensor, image_size: tuple[int, int], half_width: int = 36) -> Tensor:
    """The square around each peak, cut at the frame.

    Source: Huang et al. (2023), 36 pixels at an image side of 224; at another height H, ``round(36 H / 224)``.

    Args:
        peaks: ``(..., 2)`` int64 pixels (x, y).
        image_size: ``(H, W)`` pixels.
        half_width: pixels on either side of the peak.

    Returns:
        ``(..., 4)`` int64 inclusive pixels ``(x0, y0, x1, y1)``.

    Raises:
        ValueError: if the last axis of ``peaks`` is not 2 or ``half_width`` is negative.

    Example:
        >>> window_boxes(torch.tensor([10, 100]), (224, 224))
        tensor([  0,  64,  46, 136])
    """
    _check_last("peaks", peaks, 2)
    if half_width < 0:
        raise ValueError(f"Expected argument `half_width` to be at least 0 pixels, but got {half_width}.")
    last = torch.tensor([image_size[1] - 1, image_size[0] - 1], device=peaks.device)
    return torch.cat([(peaks - half_width).clamp(min=0), torch.minimum(peaks + half_width, last)], dim=-1)


def patch_boxes(cells: Tensor, grid: tuple[int, int], image_size: tuple[int, int], patch: int = 32) -> Tensor:
    """The image patch of each cell, a square that moves evenly from border to border.

    Source: Nauta et al. (2023, PIP-Net), ``x0 = floor(i (W - patch) / (w - 1) + 1/2)``, alike for y; one column or row
    is centred. Their code differs by up to 4 pixels per side on grids of 26 and 28 cells.

    Args:
        cells: ``(..., 2)`` int64 (x, y) in the grid.
        grid: ``(h, w)`` cells.
        image_size: ``(H, W)`` pixels.
        patch: side in pixels.

    Returns:
        ``(..., 4)`` int64 inclusive pixels ``(x0, y0, x1, y1)``.

    Raises:
        ValueError: if the last axis of ``cells`` is not 2 or the patch does not fit into the image.

    Example:
        >>> patch_boxes(torch.tensor([0, 6]), (7, 7), (224, 224))
        tensor([  0, 192,  31, 223])
    """
    _check_last("cells", cells, 2)
    if not 1 <= patch <= min(image_size):
        raise ValueError(f"Expected argument `patch` to be between 1 and {min(image_size)} pixels, but got {patch}.")

    def start(index: Tensor, count: int, pixels: int) -> Tensor:
        if count == 1:
            return torch.full_like(index, (pixels - patch + 1) // 2)
        return (2 * index * (pixels - patch) + count - 1) // (2 * (count - 1))

    x0, y0 = start(cells[..., 0], grid[1], image_size[1]), start(cells[..., 1], grid[0], image_size[0])
    return torch.stack([x0, y0, x0 + patch - 1, y0 + patch - 1], dim=-1)
