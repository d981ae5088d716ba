"""Mean cosine distances within and between sets of vectors, from the sums of their directions."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Mode = Literal["inter", "intra"]


def directions(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Rows scaled to norm 1 in float64, and which of them have a direction; the others are 0."""
    largest = vectors.abs().amax(dim=1, keepdim=True).double()  # scaled first, so that no square underflows
    has_direction = (largest > 0) & largest.isfinite()
    scaled = (vectors / largest).masked_fill(~has_direction, 0)
    norms = scaled.norm(dim=1, keepdim=True).masked_fill(~has_direction, 1)
    return scaled / norms, has_direction.squeeze(1)


def distance_between(own_sum: Tensor, own_count: Tensor, other_sum: Tensor, other_count: Tensor) -> Tensor:
    """Mean distance ``(K,)`` of the vectors of each class to others; NaN without a pair.

    With the sums of directions S and R of n and m vectors it is ``1 - S·R / (n m)``.
    """
    pairs = own_count.double() * other_count
    distance = 1 - (own_sum * other_sum).sum(dim=1) / pairs
    return distance.clamp(0, 2).masked_fill(pairs == 0, torch.nan)


def distance_within(own_sum: Tensor, own_count: Tensor) -> Tensor:
    """Mean distance ``(K,)`` of the vectors of each class to each other; NaN without a pair.

    With the sum of directions S of n vectors it is ``1 - (‖S‖² - n) / (n (n - 1))``.
    """
    count = own_count.double()
    distance = 1 - (own_sum.square().sum(dim=1) - count) / (count * (count - 1))
    return distance.clamp(0, 2).masked_fill(count < 2, torch.nan)
