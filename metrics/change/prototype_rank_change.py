"""Change of the ranks of units under a perturbation (PRC)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from protometry.metrics.base import ImageMean
from protometry.metrics.change.both_perturbations import both_perturbations
from protometry.metrics.entry import Words
from protometry.metrics.primitives.ranking import check_scores, unit_ranks


def prototype_rank_change(
    scores: Tensor, perturbed_scores: Tensor, unit_ids: Tensor, active: Tensor | None = None
) -> Tensor:
    """Number of ranks by which each selected unit moves.

    Source: Schlinge et al. (2025), equation 6, after Sacha et al. (2024): ``|r' - r|`` with the rank among all active
    units, see :func:`~protometry.metrics.functional.unit_ranks`.

    Args:
        scores: ``(B, U)`` float.
        perturbed_scores: ``(B, U)`` float, or ``(B, k, U)`` with one perturbed image per selected unit.
        unit_ids: ``(B, k)`` int64 in ``[0, U)``; negative for an empty slot.
        active: ``(U,)`` bool; None for all.

    Returns:
        ``(B, k)`` float64 >= 0, lower is better; NaN in empty slots and where a score of the unit or of an active one
        is not finite.
    """
    check_scores(scores, perturbed_scores, unit_ids)
    ranks, perturbed = unit_ranks(scores, unit_ids, active), unit_ranks(perturbed_scores, unit_ids, active)
    return (perturbed - ranks).abs().double().masked_fill((ranks < 0) | (perturbed < 0), torch.nan)


class PrototypeRankChange(ImageMean):
    """Mean :func:`prototype_rank_change` of the top-k units (PRC, lower is better).

    Example:
        >>> metric = PrototypeRankChange()
        >>> perturbed = torch.tensor([[9.0, 2.0, 5.0, 3.0]])  # unit 1 falls from rank 1 to 3, unit 0 stays
        >>> metric.update(torch.tensor([[9.0, 7.0, 5.0, 3.0]]), perturbed, torch.tensor([[0, 1]]))
        >>> metric.compute()
        tensor(1., dtype=torch.float64)
    """

    unit = "ranks"
    higher_is_better = False
    active: Tensor | None

    def __init__(self, active: Tensor | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.register_buffer("active", active, persistent=False)

    def update(self, scores: Tensor, perturbed_scores: Tensor, unit_ids: Tensor, valid: Tensor | None = None) -> None:
        self._accumulate(prototype_rank_change(scores, perturbed_scores, unit_ids, self.active), valid)


PRC = both_perturbations(
    "prc",
    PrototypeRankChange,
    Words(
        question="How many ranks does a unit move among all units?",
        name="Prototype rank change",
        formula="mean of abs(r − r′), ranks among active units",
        source="[S25] 6, [S24]",
        misread="It grows with the number of units: 30 ranks of 200 may be less than 5 of 20.",
    ),
    lambda facts: PrototypeRankChange(facts.active),
    source="[S25] 6",
    misread="It grows with the number of units.",
)
