"""Negative head weights per positive one."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from protometry.metrics.base import ModelValue
from protometry.metrics.compactness.active_columns import active_columns, check_negligible
from protometry.metrics.entry import MetricEntry, Words


def negative_positive_ratio(weight: Tensor, active: Tensor | None = None, threshold: float = 1e-3) -> Tensor:
    """Negative head weights per positive one.

    Source: Schlinge et al. (2025), equation 23: ``#{w < -threshold} / #{w > threshold}``, over active columns.
    Arguments as for :func:`protometry.metrics.functional.sparsity`.

    Returns:
        float64 scalar >= 0, lower is better; NaN without a positive weight or with a weight that is not finite.

    Example:
        >>> negative_positive_ratio(torch.tensor([[1.0, 0.0, -0.5, 0.0005], [0.0, 2.0, 0.0, 0.0]]))
        tensor(0.5000, dtype=torch.float64)
    """
    check_negligible(threshold)
    columns = active_columns(weight, active)
    positive = (columns > threshold).sum()
    ratio = (columns < -threshold).sum().double() / positive
    return ratio.masked_fill((positive == 0) | ~columns.isfinite().all(), torch.nan)


class NegativePositiveRatio(ModelValue):
    """Negative head weights per positive one (NPR, lower is better)."""

    unit = "ratio"
    value_range = (0.0, math.inf)
    higher_is_better = False

    def __init__(self, threshold: float = 1e-3, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.threshold = threshold

    def update(self, weight: Tensor, active: Tensor | None = None) -> None:
        self._store(negative_positive_ratio(weight, active, self.threshold))


NEGATIVE_POSITIVE_RATIO = MetricEntry(
    "compactness/npr",
    NegativePositiveRatio,
    Words(
        question="How many weights count against a class, for each that counts for one?",
        name="Negative-positive ratio",
        formula="#{w < −10⁻³} / #{w > 10⁻³}",
        source="[S25] 23",
        misread="It depends on the number of classes: K − 1 for a head with one positive class per unit. 0 may mean "
        "that the head cannot be negative (PIPNet).",
    ),
    needs=("weight",),
)
