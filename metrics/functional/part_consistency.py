"""Kernel: consistency of a unit, whether it finds the same object part in nearly all images of its class."""

from __future__ import annotations

import torch
from torch import Tensor

from metrics.functional.primitives.checks import check_tensor


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
