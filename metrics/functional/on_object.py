"""Kernel: how much of the cell at a map's peak is object."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from metrics.functional.primitives.checks import check_tensor
from metrics.functional.primitives.peaks import peak_cells
from metrics.functional.primitives.regions import is_flat, value_range


def peak_object_share(maps: Tensor, object_masks: Tensor) -> Tensor:
    """Share of the pixels of a map's peak cell that belong to the object.

    Source: none. ``|cell ∩ m| / |cell|`` with m = ``object_masks``, where cell (i, j) of the grid is the tile of rows
    ``floor(i H / h)`` to ``ceil((i + 1) H / h) - 1``, alike for columns: what :meth:`Geometry.cell_box` returns.

    Args:
        maps: ``(B, k, h, w)`` float.
        object_masks: ``(B, H, W)`` bool.

    Returns:
        ``(B, k)`` float64 fractions; NaN for a map that is flat or not finite, and where there is no object.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> import torch
        >>> mask = torch.tensor([[[True, True, False, False], [True, False, False, False]]])
        >>> peak_object_share(torch.tensor([[[[2.0, 1.0]], [[1.0, 2.0]]]]), mask)
        tensor([[0.7500, 0.0000]], dtype=torch.float64)
    """
    check_tensor("maps", maps, ("B", "k", "h", "w"), "float")
    check_tensor("object_masks", object_masks, (maps.shape[0], "H", "W"), "bool")
    tiles = F.adaptive_avg_pool2d(object_masks[:, None].double(), (maps.shape[2], maps.shape[3]))
    cells = peak_cells(maps)
    index = cells[..., 1] * maps.shape[3] + cells[..., 0]
    share = tiles.flatten(1).gather(1, index)
    undefined = is_flat(*value_range(maps)) | ~object_masks.flatten(1).any(dim=1, keepdim=True)
    return share.masked_fill(undefined, float("nan"))
