"""Peaks of maps, as grid cells and as pixels of the image."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from protometry.metrics.primitives.checks import check_choice, check_maps
from protometry.metrics.primitives.regions import is_flat
from protometry.metrics.primitives.upsample import Lattice, Mode, upsample_maps

UPSAMPLED_ELEMENTS = 2**24  # upsampled pixels held at once: 64 MiB of float32


def peak_cells(maps: Tensor) -> Tensor:
    """The cell of each map's maximum, ties to the first in row-major order.

    Args:
        maps: ``(..., h, w)`` float.

    Returns:
        ``(..., 2)`` int64 (x, y); (0, 0) for a map that is flat, as defined by
        :func:`~protometry.metrics.functional.percentile_mask`, or not
        finite.

    Example:
        >>> peak_cells(torch.tensor([[0.0, 2.0, 2.0], [2.0, 0.0, 0.0]]))
        tensor([1, 0])
    """
    check_maps("maps", maps)
    cells = maps.flatten(start_dim=-2)
    high, index = cells.max(dim=-1)  # several times faster than `argmax` on a CPU, and alike the first of equal cells
    index = index.masked_fill(is_flat(cells.amin(dim=-1).double(), high.double()), 0)
    return torch.stack([index % maps.shape[-1], index // maps.shape[-1]], dim=-1)


def peak_locations(
    maps: Tensor, image_size: tuple[int, int], mode: Mode = "bicubic", lattice: Lattice | None = None
) -> Tensor:
    """The pixel of each map's maximum after upsampling to the image.

    Corners are not aligned. Maps are upsampled in chunks of at most 64 MiB.

    Args:
        maps: ``(..., h, w)`` float.
        image_size: ``(H, W)`` pixels.
        mode: ``"bicubic"`` or ``"bilinear"``.
        lattice: as of :func:`~protometry.metrics.primitives.upsample.upsample_maps`.

    Returns:
        ``(..., 2)`` int64 pixels (x, y); (0, 0) for a map that is flat, as defined by
        :func:`~protometry.metrics.functional.percentile_mask`, or not
        finite.

    Example:
        >>> peak_locations(torch.tensor([[0.0, 0.0], [0.0, 1.0]]), (8, 8), mode="bilinear")
        tensor([6, 6])
    """
    check_choice("mode", mode, ("bicubic", "bilinear"))
    check_maps("maps", maps)
    cells = maps.reshape(-1, *maps.shape[-2:])
    cells = cells if cells.dtype == torch.float64 else cells.float()
    peaks = [
        peak_cells(upsample_maps(chunk, image_size, mode, lattice))
        for chunk in torch.split(cells, max(1, UPSAMPLED_ELEMENTS // math.prod(image_size)))
    ]
    return torch.cat(peaks).view(*maps.shape[:-2], 2)


def reach(grid: tuple[int, int]) -> int:
    """Rows and columns within which two cells of a grid are at one place: a seventh of its shorter side, at least 1.

    Example:
        >>> reach((14, 14)), reach((4, 8))
        (2, 1)
    """
    return max(1, round(min(grid) / 7))


def margin_to_elsewhere(distances: Tensor) -> Tensor:
    """How much farther than the nearest cell the nearest one elsewhere is, ``(...)`` >= 0, of maps ``(..., h, w)``.

    Ours. Elsewhere are the cells beyond :func:`reach` of the nearest one. The margin is large where a
    prototype finds one place in an image, and small where all of the image, or nothing in it, resembles the prototype.

    Returns:
        0 for maps without such cells.

    Example:
        >>> margin_to_elsewhere(torch.tensor([[0.1, 0.2, 0.9, 0.8, 0.4]]))  # 0.4, not 0.2, beside 0.1
        tensor(0.3000)
    """
    height, width = distances.shape[-2:]
    cells = torch.arange(height * width, device=distances.device)
    rows, columns = cells // width, cells % width
    apart = torch.maximum((rows[:, None] - rows).abs(), (columns[:, None] - columns).abs())
    nearest, cell = distances.flatten(-2).min(dim=-1)
    elsewhere = distances.flatten(-2).masked_fill((apart <= reach((height, width)))[cell], torch.inf).amin(dim=-1)
    return (elsewhere - nearest).where(elsewhere.isfinite(), 0.0)
