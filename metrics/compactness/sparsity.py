"""Share of head weights that are negligible."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from protometry.metrics.base import ModelValue
from protometry.metrics.compactness.active_columns import active_columns, check_negligible
from protometry.metrics.entry import MetricEntry, Words


def sparsity(weight: Tensor, active: Tensor | None = None, threshold: float = 1e-3) -> Tensor:
    """Share of head weights that are negligible.

    Source: Schlinge et al. (2025), equation 22: ``1 - #{|w| > threshold} / |W|``, over active columns.

    Args:
        weight: ``(K, U)`` float head weights without bias.
        active: ``(U,)`` bool; None for all.
        threshold: magnitude up to which a weight is negligible, at least 0.

    Returns:
        float64 scalar in [0, 1], higher is better; NaN without active units or with a weight that is not finite.

    Example:
        >>> sparsity(torch.tensor([[1.0, 0.0, -0.5, 0.0005], [0.0, 2.0, 0.0, 0.0]]))
        tensor(0.6250, dtype=torch.float64)
    """
    check_negligible(threshold)
    columns = active_columns(weight, active)
    negligible = (columns.abs() <= threshold).double().mean()
    return negligible.masked_fill(~columns.isfinite().all(), torch.nan)


class Sparsity(ModelValue):
    """Share of head weights that are negligible (higher is better)."""

    unit = "fraction"
    higher_is_better = True

    def __init__(self, threshold: float = 1e-3, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.threshold = threshold

    def update(self, weight: Tensor, active: Tensor | None = None) -> None:
        self._store(sparsity(weight, active, self.threshold))


SPARSITY = MetricEntry(
    "compactness/sparsity",
    Sparsity,
    Words(
        question="How many weights are zero?",
        name="Sparsity",
        formula="1 − #{abs(w) > 10⁻³} / #{w} over the weights of active units",
        source="[S25] 22",
        misread="A head without small weights has 0 although pruning removed half of its units: pruned columns are "
        "left out.",
    ),
    needs=("weight",),
)
