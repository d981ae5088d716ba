"""Number of units that matter on an image."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from protometry.metrics.base import ImageMean
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_tensor, check_threshold


def local_size(scores: Tensor, active: Tensor | None = None, threshold: float = 0.1) -> Tensor:
    """Number of units that matter on an image.

    Source: Schlinge et al. (2025), equations 20 and 21: ``#{u active: scores_u / max scores > threshold}``, compared
    in float64.

    Args:
        scores: ``(B, U)`` float.
        active: ``(U,)`` bool; None for all.
        threshold: share of the largest score, in [0, 1).

    Returns:
        ``(B,)`` float64 counts, lower is better; NaN where the largest active score is not positive or one is not
        finite.

    Example:
        >>> local_size(torch.tensor([[2.0, 1.0, 0.3, 0.19], [-1.0, -2.0, -3.0, -4.0]]))
        tensor([3., nan], dtype=torch.float64)
    """
    check_threshold(threshold)
    check_tensor("scores", scores, ("B", "U"), "float")
    eligible = scores.double()
    finite = eligible.isfinite()
    if active is not None:
        check_tensor("active", active, (scores.shape[1],), "bool")
        finite, eligible = finite | ~active, eligible.masked_fill(~active, -torch.inf)
    best = eligible.amax(dim=1, keepdim=True)
    counts = (eligible / best > threshold).sum(dim=1).double()
    return counts.masked_fill((best.squeeze(1) <= 0) | ~finite.all(dim=1), torch.nan)


class LocalSize(ImageMean):
    """Mean number of units that matter on an image (lower is better)."""

    unit = "count"
    value_range = (1.0, math.inf)
    higher_is_better = False
    active: Tensor | None

    def __init__(self, active: Tensor | None = None, threshold: float = 0.1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.register_buffer("active", active, persistent=False)
        self.threshold = threshold

    def update(self, scores: Tensor) -> None:
        self._accumulate(local_size(scores, self.active, self.threshold))


LOCAL_SIZE = MetricEntry(
    "compactness/local_size",
    LocalSize,
    Words(
        question="How many units matter on one image?",
        name="Local size",
        formula="mean number of active units with s_u / max s > 0.1",
        source="[S25] 20, 21",
        misread="It is relative to the best unit: scores with an offset (as of a logarithm of distances) make all "
        "units count.",
    ),
    lambda facts: LocalSize(facts.active),
)
