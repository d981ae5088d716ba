"""Boxes in an image: around regions, around peaks and around the patches of grid cells."""

from __future__ import annotations

import torch
from torch import Tensor

from protometry.metrics.primitives.checks import check_at_least, check_last_axis
from protometry.metrics.primitives.upsample import Lattice


def bounding_boxes(masks: Tensor) -> Tensor:
    """The tight box around each mask.

    Args:
        masks: ``(..., H, W)`` bool.

    Returns:
        ``(..., 4)`` int64 inclusive pixels ``(x0, y0, x1, y1)``; ``(0, 0, -1, -1)`` for an empty mask.

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
    after = columns.flip(-1).argmax(dim=-1), rows.flip(-1).argmax(dim=-1)
    last = torch.stack([masks.shape[-1] - 1 - after[0], masks.shape[-2] - 1 - after[1]], dim=-1)
    empty = rows.amax(dim=-1, keepdim=True) == 0
    return torch.cat([first, last.masked_fill(empty, -1)], dim=-1)


def points_in_boxes(points: Tensor, boxes: Tensor) -> Tensor:
    """Which points lie in which boxes: ``x0 <= floor(x) <= x1`` and ``y0 <= floor(y) <= y1``.

    Args:
        points: ``(B, N, 2)`` float pixels (x, y).
        boxes: ``(B, k, 4)`` int64 inclusive pixels ``(x0, y0, x1, y1)``.

    Returns:
        ``(B, k, N)`` bool.

    Example:
        >>> points_in_boxes(torch.tensor([[[2.0, 1.0], [4.9, 3.2], [5.0, 3.0]]]), torch.tensor([[[2, 1, 4, 3]]]))
        tensor([[[ True,  True, False]]])
    """
    if points.ndim != 3 or boxes.ndim != 3 or len(points) != len(boxes):
        raise ValueError(
            "Expected arguments `points`, `boxes` to be of shapes (B, N, 2) and (B, k, 4), "
            f"but got {tuple(points.shape)} and {tuple(boxes.shape)}."
        )
    check_last_axis("points", points, 2)
    check_last_axis("boxes", boxes, 4)
    pixels, corners = points.floor()[:, None], boxes[:, :, None]
    return ((pixels >= corners[..., :2]) & (pixels <= corners[..., 2:])).all(dim=-1)


def window_boxes(peaks: Tensor, image_size: tuple[int, int], half_width: int = 36) -> Tensor:
    """The square around each peak, cut at the frame.

    Source: Huang et al. (2023), 36 pixels at an image side of 224; at another height H, ``round(36 H / 224)``.

    Args:
        peaks: ``(..., 2)`` int64 pixels (x, y).
        image_size: ``(H, W)`` pixels.
        half_width: pixels on either side of the peak.

    Returns:
        ``(..., 4)`` int64 inclusive pixels ``(x0, y0, x1, y1)``.

    Example:
        >>> window_boxes(torch.tensor([10, 100]), (224, 224))
        tensor([  0,  64,  46, 136])
    """
    check_last_axis("peaks", peaks, 2)
    check_at_least("half_width", half_width, 0)
    x, y = (peaks + half_width).unbind(dim=-1)
    last = torch.stack([x.clamp(max=image_size[1] - 1), y.clamp(max=image_size[0] - 1)], dim=-1)
    return torch.cat([(peaks - half_width).clamp(min=0), last], dim=-1)


def patch_boxes(
    cells: Tensor,
    grid: tuple[int, int],
    image_size: tuple[int, int],
    patch: int = 32,
    lattice: Lattice | None = None,
) -> Tensor:
    """The image patch of each cell, a square that moves evenly from border to border.

    Source: Nauta et al. (2023, PIP-Net), ``x0 = floor(i (W - patch) / (w - 1) + 1/2)``, alike for y; one column or row
    is centred. Their code differs by up to 4 pixels per side on grids of 26 and 28 cells. Deviation: of cells that do
    not fill the image exactly it is the square about the centre of what they read, moved inside.

    Args:
        cells: ``(..., 2)`` int64 (x, y) in the grid.
        grid: ``(h, w)`` cells.
        image_size: ``(H, W)`` pixels.
        patch: side in pixels.
        lattice: start and jump of such cells, see :func:`~protometry.metrics.primitives.upsample.upsample_maps`.

    Returns:
        ``(..., 4)`` int64 inclusive pixels ``(x0, y0, x1, y1)``.

    Example:
        >>> patch_boxes(torch.tensor([0, 6]), (7, 7), (224, 224))
        tensor([  0, 192,  31, 223])
    """
    check_last_axis("cells", cells, 2)
    if not 1 <= patch <= min(image_size):
        raise ValueError(f"Expected argument `patch` to be between 1 and {min(image_size)} pixels, but got {patch}.")

    def start(index: Tensor, axis: int) -> Tensor:
        count, pixels = grid[axis], image_size[axis]
        if lattice is not None:
            first, jump = lattice[axis]
            return (first + jump * index.double() - patch / 2 + 0.5).floor().long().clamp(0, pixels - patch)
        if count == 1:
            return torch.full_like(index, (pixels - patch + 1) // 2)
        return (2 * index * (pixels - patch) + count - 1) // (2 * (count - 1))

    x0, y0 = start(cells[..., 0], 1), start(cells[..., 1], 0)
    return torch.stack([x0, y0, x0 + patch - 1, y0 + patch - 1], dim=-1)


def cell_boxes(
    cells: Tensor, grid: tuple[int, int], image_size: tuple[int, int], lattice: Lattice | None = None
) -> Tensor:
    """The box of each cell: every pixel that its share of the image touches, or the square about what it reads.

    Args:
        cells: ``(..., 2)`` int64 (x, y) in the grid.
        grid: ``(h, w)`` cells.
        image_size: ``(H, W)`` pixels.
        lattice: start and jump of cells that do not fill the image exactly, see
            :func:`~protometry.metrics.primitives.upsample.upsample_maps`; the square has the side of the jump and is
            clipped.

    Returns:
        ``(..., 4)`` int64 inclusive pixels ``(x0, y0, x1, y1)``.

    Example:
        >>> cell_boxes(torch.tensor([0, 2]), (3, 3), (8, 6))
        tensor([0, 5, 1, 7])
    """
    check_last_axis("cells", cells, 2)
    (h, w), (height, width) = grid, image_size
    (x, y), last = cells.unbind(dim=-1), cells + 1
    if lattice is not None:
        start, jump = (cells.new_tensor(values, dtype=torch.float64) for values in zip(*reversed(lattice), strict=True))
        edges = [(start + jump * (cells + side) + 0.5).floor().long() for side in (-0.5, 0.5)]
        limit = cells.new_tensor([width - 1, height - 1])
        return torch.cat([edge.clamp(min=0).minimum(limit) for edge in (edges[0], edges[1] - 1)], dim=-1)
    x1, y1 = (last[..., 0] * width + w - 1) // w - 1, (last[..., 1] * height + h - 1) // h - 1
    return torch.stack([x * width // w, y * height // h, x1, y1], dim=-1)
