"""Number of features of a head, and of each of its classes, where selected weights are exactly 0 or 1."""

from __future__ import annotations

import torch
from torch import Tensor

from protometry.metrics.base import ModelValue
from protometry.metrics.compactness.active_columns import active_columns, finite_columns
from protometry.metrics.entry import MetricEntry, Words


def number_of_features(weight: Tensor, active: Tensor | None = None) -> Tensor:
    """Number of units with any non-zero head weight.

    Source: Norrenbrock et al. (2025): ``#{u : w_cu != 0 for some c}`` over active columns, without a threshold.

    Args:
        weight: ``(K, U)`` float head weights without bias.
        active: ``(U,)`` bool; None for all.

    Returns:
        int64 scalar, lower is better.

    Raises:
        ValueError: if an entry is not finite.

    Example:
        >>> number_of_features(torch.tensor([[1.0, 0.0, -0.5, 0.0005], [0.0, 2.0, 0.0, 0.0]]))
        tensor(4)
    """
    return (finite_columns(weight, active) != 0).any(dim=0).sum()


def features_per_class(weight: Tensor, active: Tensor | None = None) -> Tensor:
    """Non-zero head weights per class.

    Source: Norrenbrock et al. (2025): ``#{(c, u) : w_cu != 0} / K`` over active columns, without a threshold.

    Returns:
        float64 scalar >= 0, lower is better; NaN without classes or with a weight that is not finite.

    Example:
        >>> features_per_class(torch.tensor([[1.0, 0.0, -0.5, 0.0005], [0.0, 2.0, 0.0, 0.0]]))
        tensor(2., dtype=torch.float64)
    """
    columns = active_columns(weight, active)
    return (columns != 0).sum(dim=1).double().mean().masked_fill(~columns.isfinite().all(), torch.nan)


class NumberOfFeatures(ModelValue):
    """Number of units with any non-zero head weight (lower is better)."""

    unit = "count"
    higher_is_better = False

    def update(self, weight: Tensor, active: Tensor | None = None) -> None:
        self._store(number_of_features(weight, active))


class FeaturesPerClass(ModelValue):
    """Non-zero head weights per class (lower is better)."""

    unit = "count"
    higher_is_better = False

    def update(self, weight: Tensor, active: Tensor | None = None) -> None:
        self._store(features_per_class(weight, active))


NUMBER_OF_FEATURES = MetricEntry(
    "compactness/number_of_features",
    NumberOfFeatures,
    Words(
        question="How many units have any weight?",
        name="Number of features",
        formula="number of active units with any weight ≠ 0",
        source="[N25]",
        misread="There is no threshold: a trained dense head uses all units.",
    ),
    needs=("weight",),
)

FEATURES_PER_CLASS = MetricEntry(
    "compactness/features_per_class",
    FeaturesPerClass,
    Words(
        question="How many units is a class made of?",
        name="Features per class",
        formula="#{(c, u) : w_cu ≠ 0} / K",
        source="[N25]",
        misread="As above; for a model with shared units it says nothing about how many a decision needs.",
    ),
    needs=("weight",),
)
