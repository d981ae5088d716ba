"""Kernels: purity of a unit, whether the patches of its top images hold one object part."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor

from metrics.functional.primitives.checks import check_at_least, check_tensor


def check_groups(groups: Sequence[Sequence[int]], num_parts: int) -> None:
    """Refuse groups that are empty or name an unknown part, with a ``ValueError``."""
    if not groups or not all(group and all(0 <= part < num_parts for part in group) for group in groups):
        raise ValueError(
            f"Expected argument `groups` to hold lists of part indices in [0, {num_parts}), but got {groups!r}."
        )


def merge_parts(inside: Tensor, visible: Tensor, groups: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Treat several parts, such as the left and the right wing, as one.

    Source: Nauta et al. (2023). A group is visible if any of its parts is, and inside if any visible part of it is.

    Args:
        inside: ``(..., N)`` bool.
        visible: ``(..., N)`` bool.
        groups: lists of part indices, one per merged part; parts in no list are left out.

    Returns:
        The merged ``inside`` and ``visible``, ``(..., len(groups))`` bool.

    Raises:
        ValueError: if the shapes or a dtype differ from the above, or a group is empty or names an unknown part.

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
    check_groups(groups, inside.shape[-1])

    def merge(parts: Tensor) -> Tensor:
        each = parts.unbind(dim=-1)  # indexing by a list would copy it to the device and wait
        return torch.stack([reduce(torch.logical_or, (each[part] for part in group)) for group in groups], dim=-1)

    return merge(inside & visible), merge(visible)


def part_purity(inside: Tensor, visible: Tensor, min_visible: int = 1) -> Tensor:
    """Share of a unit's top images whose patch holds its best part.

    Source: Nauta et al. (2023, PIP-Net): ``max_j mean(inside_j | visible_j)`` over the images. A part seen in a single
    image can reach 1; ``min_visible`` leaves out parts seen in fewer.

    Args:
        inside: ``(U, k, N)`` bool, whether the part lies in the unit's patch on its k top images.
        visible: ``(U, k, N)`` bool, whether the part is visible there.
        min_visible: images in which a part must be visible to count, at least 1.

    Returns:
        ``(U,)`` float64 fractions, higher is better; NaN for a unit without a part that counts.

    Raises:
        ValueError: if a shape or dtype differs from the above or ``min_visible`` is below 1.

    Example:
        >>> inside = torch.tensor([[[True, False], [True, False], [False, False], [True, True]]])
        >>> visible = torch.tensor([[[True, True], [True, True], [True, False], [True, False]]])
        >>> part_purity(inside, visible)
        tensor([0.7500], dtype=torch.float64)
    """
    check_tensor("inside", inside, ("U", "k", "N"), "bool")
    check_tensor("visible", visible, tuple(inside.shape), "bool")
    check_at_least("min_visible", min_visible, 1)
    counts = visible.sum(dim=1)
    counted = counts >= min_visible
    shares = ((inside & visible).sum(dim=1).double() / counts).masked_fill(~counted, -torch.inf)
    return shares.amax(dim=1).masked_fill(~counted.any(dim=1), torch.nan)


def top_images(scores: Tensor, sample_ids: Tensor, flags: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """The k best of C candidates of every unit: ``(U, C)`` scores, ``(U, C)`` ids and ``(U, C, N)`` flags.

    Ties go to the smaller id; of candidates with one id the best counts, the others get the score minus infinity.
    """
    order = scores.argsort(dim=1, descending=True, stable=True)
    order = order.gather(1, sample_ids.gather(1, order).argsort(dim=1, stable=True))  # by id, best of an id first
    scores, sample_ids = scores.gather(1, order), sample_ids.gather(1, order)
    repeated = torch.zeros_like(scores, dtype=torch.bool)
    repeated[:, 1:] = sample_ids[:, 1:] == sample_ids[:, :-1]
    scores = scores.masked_fill(repeated, -torch.inf)
    best = scores.argsort(dim=1, descending=True, stable=True)[:, :k]
    rows = order.gather(1, best)[:, :, None].expand(-1, -1, flags.shape[2])
    return scores.gather(1, best), sample_ids.gather(1, best), flags.gather(1, rows)
