"""Number of units that a model uses."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from protometry.metrics.base import ModelValue
from protometry.metrics.compactness.active_columns import check_negligible, finite_columns
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_tensor
from protometry.metrics.primitives.variants import Variant, check_variant


def global_size(
    weight: Tensor | None,
    active: Tensor,
    presence: Tensor | None = None,
    threshold: float = 1e-3,
    variant: Variant = "paper",
) -> Tensor:
    """Number of active units that any class uses.

    Source: Schlinge et al. (2025), section 5.5: ``#{u : max_c |w_cu| > threshold}`` over the active units, with w =
    ``weight``. With assigned slots (ProtoPool) the units any slot is assigned to. ``variant="quanproto"`` counts
    positive entries only.

    Args:
        weight: ``(K, U)`` float head weights without bias, or None for a model without them: every active unit counts.
        active: ``(U,)`` bool.
        presence: ``(K, U)`` 0/1 matrix of the hard slot assignment; takes the place of ``weight``.
        threshold: entries above it are used, at least 0.
        variant: ``"quanproto"`` also takes raw assignment logits as ``presence``, as the published tables did.

    Returns:
        int64 scalar, lower is better.

    Raises:
        ValueError: if an entry is not finite, or ``presence``
            is not 0/1.

    Example:
        >>> import torch
        >>> weight = torch.tensor([[1.0, 0.0, -0.5, 0.0005], [0.0, 2.0, 0.0, 0.0]])
        >>> global_size(weight, torch.ones(4, dtype=torch.bool))
        tensor(3)
    """
    check_variant(variant)
    check_negligible(threshold)
    name, matrix = ("weight", weight) if presence is None else ("presence", presence)
    if matrix is None:
        check_tensor("active", active, ("U",), "bool")
        return active.sum()
    if presence is not None and presence.dtype in (torch.bool, torch.int64):
        matrix = presence.double()
    columns = finite_columns(matrix, active, name)
    if variant == "quanproto":
        return (columns > threshold).any(dim=0).sum()
    if presence is not None and not ((columns == 0) | (columns == 1)).all():
        raise ValueError("Expected argument `presence` to be a 0/1 assignment, but got other values; take the argmax.")
    used = columns.abs() > threshold if presence is None else columns == 1
    return used.any(dim=0).sum()


class GlobalSize(ModelValue):
    """Number of active units that any class uses (lower is better)."""

    unit = "count"
    higher_is_better = False

    def __init__(self, threshold: float = 1e-3, variant: Variant = "paper", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.threshold = threshold
        self.variant: Variant = variant

    def update(self, weight: Tensor | None, active: Tensor, presence: Tensor | None = None) -> None:
        self._store(global_size(weight, active, presence, self.threshold, self.variant))


GLOBAL_SIZE = MetricEntry(
    "compactness/global_size",
    GlobalSize,
    Words(
        question="How many units does the model use?",
        name="Global size",
        formula="number of active units u with max_c abs(w_cu) > 10⁻³",
        source="[S25] 5.5",
        misread="Copies of a prototype count separately. Negative weights count, too. Without a weight "
        "matrix, all active units count; ProtoPool: those with a slot.",
    ),
    lambda facts: GlobalSize(variant=facts.variant),
)
