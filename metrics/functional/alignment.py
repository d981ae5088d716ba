"""Whether a unit stands for one object part: always the same, the same under noise, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from metrics.functional.primitives.boxes import points_in_boxes, window_boxes
from metrics.functional.primitives.checks import check_tensor


def _check_groups(groups: Sequence[Sequence[int]], num_parts: int) -> None:
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
    _check_groups(groups, inside.shape[-1])

    def merge(parts: Tensor) -> Tensor:
        return torch.stack([parts[..., list(group)].any(dim=-1) for group in groups], dim=-1)

    return merge(inside & visible), merge(visible)


def _part_hits(
    peaks: Tensor, part_locations: Tensor, part_visible: Tensor, image_size: tuple[int, int], half_width: int
) -> Tensor:
    """``(B, M, N)`` bool, the visible parts in the window around each of the ``(B, M, 2)`` peaks."""
    return points_in_boxes(part_locations, window_boxes(peaks, image_size, half_width)) & part_visible[:, None]


def part_consistency(hits: Tensor, visible: Tensor, threshold: float = 0.8) -> Tensor:
    """Whether a unit finds some part in nearly all its images.

    Source: Huang et al. (2023). A unit is consistent if ``max_j hits_j / visible_j >= threshold``, inclusive, over the
    parts j that were visible at all.

    Args:
        hits: ``(U, N)`` int64, images of the unit's class whose visible part lies in the window around its peak.
        visible: ``(U, N)`` int64, images of the unit's class in which the part is visible.
        threshold: share of images.

    Returns:
        ``(U,)`` float64, 1 or 0, higher is better; NaN for a unit that never met a visible part.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> part_consistency(torch.tensor([[7, 1], [3, 2]]), torch.tensor([[8, 4], [4, 3]]))
        tensor([1., 0.], dtype=torch.float64)
    """
    check_tensor("hits", hits, ("U", "N"), "int64")
    check_tensor("visible", visible, tuple(hits.shape), "int64")
    met = visible > 0
    consistent = ((hits.double() / visible >= threshold) & met).any(dim=1)
    return consistent.double().masked_fill(~met.any(dim=1), torch.nan)


def part_stability(unchanged: Tensor, total: Tensor) -> Tensor:
    """Share of noisy images on which a unit finds exactly the parts it finds on the clean image.

    Source: Huang et al. (2023): ``unchanged / total``.

    Args:
        unchanged: ``(U,)`` int64, pairs of images and noise draws with equal vectors of parts found.
        total: ``(U,)`` int64, all such pairs.

    Returns:
        ``(U,)`` float64 fractions, higher is better; NaN where ``total`` is 0.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> part_stability(torch.tensor([3]), torch.tensor([4]))
        tensor([0.7500], dtype=torch.float64)
    """
    check_tensor("unchanged", unchanged, ("U",), "int64")
    check_tensor("total", total, tuple(unchanged.shape), "int64")
    return unchanged.double() / total


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
    if min_visible < 1:
        raise ValueError(f"Expected argument `min_visible` to be at least 1, but got {min_visible}.")
    counts = visible.sum(dim=1)
    counted = counts >= min_visible
    shares = ((inside & visible).sum(dim=1).double() / counts).masked_fill(~counted, -torch.inf)
    return shares.amax(dim=1).masked_fill(~counted.any(dim=1), torch.nan)


def _top_images(scores: Tensor, sample_ids: Tensor, flags: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
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
