"""Maps of cells enlarged to the pixels of an image: where cells lie, not what they saw."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Mode = Literal["bicubic", "bilinear", "nearest"]
Lattice = tuple[tuple[float, float], tuple[float, float]]  # centre of the first and distance of cells, (rows, columns)


def upsample_maps(
    maps: Tensor, size: tuple[int, int], mode: Mode = "bicubic", lattice: Lattice | None = None
) -> Tensor:
    """Enlarge maps of cells ``(B, h, w)`` to the pixels of an image ``(B, H, W)``.

    Half-pixel centres, no antialiasing, borders repeated. Pixel x reads the grid at ``(x + 1/2) w / W - 1/2``, or, with
    a lattice, at ``(x + 1/2 - start) / jump``. Bicubic is the kernel with a = -0.75: values overshoot by up to about
    0.2 of a map's range, and the largest pixel may lie outside the largest cell. With ``"nearest"``, a pixel halfway
    between two cells takes the later one.

    Args:
        maps: ``(B, h, w)`` float.
        size: ``(H, W)`` pixels.
        mode: the interpolation.
        lattice: start and jump in pixels, of rows and of columns, which a model's ``geometry.lattice`` gives; None for
            cells that fill the image exactly.

    Example:
        >>> upsample_maps(torch.tensor([[[0.0, 1.0]]]), (1, 4), "bilinear")
        tensor([[[0.0000, 0.2500, 0.7500, 1.0000]]])
        >>> lattice = (0.5, 1.0), (1.0, 2.0)  # two cells of two pixels; the fifth pixel belongs to none
        >>> upsample_maps(torch.tensor([[[0.0, 1.0]]]), (1, 5), "bilinear", lattice)
        tensor([[[0.0000, 0.2500, 0.7500, 1.0000, 1.0000]]])
    """
    planes = maps[:, None]
    if lattice is None:
        # "nearest" of torch reads at x w / W, without half-pixel centres; "nearest-exact" has them
        if mode == "nearest":
            return F.interpolate(planes, size, mode="nearest-exact")[:, 0]
        return F.interpolate(planes, size, mode=mode, align_corners=False)[:, 0]
    rows, columns = (
        _grid_coordinates(cells, pixels, mode, line, maps.device).to(maps)
        for cells, pixels, line in zip(maps.shape[1:], size, lattice, strict=True)
    )
    grid = torch.stack([columns.expand(*size), rows[:, None].expand(*size)], dim=-1).expand(len(maps), -1, -1, -1)
    return F.grid_sample(planes, grid, mode=mode, padding_mode="border", align_corners=False)[:, 0]


def _grid_coordinates(cells: int, pixels: int, mode: Mode, line: tuple[float, float], device: torch.device) -> Tensor:
    """Where the pixels of one axis read the grid, in the coordinates of ``grid_sample``: -1 to 1 over all cells."""
    start, jump = line
    position = (torch.arange(pixels, dtype=torch.float64, device=device) + 0.5 - start) / jump
    if mode == "nearest":
        position = (position + 0.5).floor()  # here, because `grid_sample` would round ties to even cells
    return (2 * position + 1) / cells - 1
