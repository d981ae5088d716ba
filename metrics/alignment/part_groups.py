"""Parts that count as one, such as the left and the right wing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor


def checked_groups(groups: Sequence[Sequence[int]] | None, num_parts: int) -> Sequence[Sequence[int]]:
    """The groups, by default one of every part; ``ValueError`` if one is empty or names an unknown part."""
    if groups is None:
        groups = [[part] for part in range(num_parts)]
    if not groups or not all(group and all(0 <= part < num_parts for part in group) for group in groups):
        raise ValueError(
            f"Expected argument `groups` to hold lists of part indices in [0, {num_parts}), but got {groups!r}."
        )
    return groups


def merge_parts(inside: Tensor, visible: Tensor, groups: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Treat several parts, such as the left and the right wing, as one.

    Source: Nauta et al. (2023). A group is visible if any of its parts is, and inside if any visible part of it is.

    Args:
        inside: ``(..., N)`` bool.
        visible: ``(..., N)`` bool.
        groups: lists of part indices, one per merged part; parts in no list are left out.

    Returns:
        The merged ``inside`` and ``visible``, ``(..., len(groups))`` bool.

    Example:
        >>> inside, visible = torch.tensor([True, False, True]), torch.tensor([False, True, True])
        >>> merge_parts(inside, visible, [[0, 1], [2]])
        (tensor([False,  True]), tensor([True, True]))
    """
    if inside.shape != visible.shape or inside.ndim < 1 or inside.dtype != torch.bool or visible.dtype != torch.bool:
        raise ValueError(
            "Expected arguments `inside`, `visible` to be bool tensors of one shape (..., N), "
            f"but got {tuple(inside.shape)} {inside.dtype} and {tuple(visible.shape)} {visible.dtype}."
        )
    checked_groups(groups, inside.shape[-1])

    def merge(parts: Tensor) -> Tensor:
        each = parts.unbind(dim=-1)  # indexing by a list would copy it to the device and wait
        return torch.stack([reduce(torch.logical_or, (each[part] for part in group)) for group in groups], dim=-1)

    return merge(inside & visible), merge(visible)
