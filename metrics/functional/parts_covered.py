"""Kernels: how many different object parts the units of a class point at."""

from __future__ import annotations

import torch
from torch import Tensor

from metrics.functional.primitives.checks import check_tensor
from metrics.functional.primitives.owned_units import part_hits


def nearest_parts(
    peaks: Tensor, part_locations: Tensor, part_visible: Tensor, image_size: tuple[int, int], half_width: int
) -> Tensor:
    """``(B, M, N)`` bool, of the visible parts in the window around each of the ``(B, M, 2)`` peaks the nearest one."""
    hits = part_hits(peaks, part_locations, part_visible, image_size, half_width)
    offsets = part_locations.double()[:, None] - peaks.double()[:, :, None]
    distances = offsets.square().sum(dim=3).masked_fill(~hits, torch.inf)
    nearest = torch.nn.functional.one_hot(distances.argmin(dim=2), part_visible.shape[1]).bool()
    return nearest & hits


def parts_covered(hits: Tensor, visible: Tensor, owner: Tensor, threshold: float = 0.5) -> Tensor:
    """Number of different parts at which the units of a class point.

    Source: none. A unit points at ``argmax_j hits_j / visible_j`` over the parts j that were visible at all (the first
    on ties), if that share reaches the threshold, and at no part otherwise.

    Args:
        hits: ``(U, N)`` int64, images of the unit's classes on which part j is the one nearest to its peak.
        visible: ``(U, N)`` int64, images of the unit's classes in which the part is visible.
        owner: ``(U, K)`` bool, active units of each class.
        threshold: share of images, inclusive.

    Returns:
        ``(K,)`` float64 counts, higher is better; NaN for a class none of whose units ever met a visible part.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> hits, visible = torch.tensor([[8, 1], [2, 7], [0, 9], [3, 3]]), torch.tensor([[9, 9]]).expand(4, 2)
        >>> parts_covered(hits, visible, torch.ones(4, 1, dtype=torch.bool))  # the last unit points at no part
        tensor([2.], dtype=torch.float64)
    """
    check_tensor("hits", hits, ("U", "N"), "int64")
    check_tensor("visible", visible, tuple(hits.shape), "int64")
    check_tensor("owner", owner, (hits.shape[0], "K"), "bool")
    met = visible > 0
    share, part = (hits.double() / visible).masked_fill(~met, -1).max(dim=1)
    pointed = torch.nn.functional.one_hot(part, hits.shape[1]) * (share >= threshold)[:, None]
    covered = (owner.double().T @ pointed.double() > 0).sum(dim=1).double()
    return covered.masked_fill(~(owner & met.any(dim=1, keepdim=True)).any(dim=0), torch.nan)
