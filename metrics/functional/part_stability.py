"""Kernel: stability of a unit, whether it finds the same object parts under noise."""

from __future__ import annotations

from torch import Tensor

from metrics.functional.primitives.checks import check_tensor


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
        >>> import torch
        >>> part_stability(torch.tensor([3]), torch.tensor([4]))
        tensor([0.7500], dtype=torch.float64)
    """
    check_tensor("unchanged", unchanged, ("U",), "int64")
    check_tensor("total", total, tuple(unchanged.shape), "int64")
    return unchanged.double() / total
