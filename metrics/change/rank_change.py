"""Changes of the order of units and of classes under a perturbation."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from metrics.base import ImageMean
from metrics.change.both_perturbations import both_perturbations
from metrics.entry import MetricEntry, Words
from metrics.primitives.checks import check_tensor
from metrics.primitives.ranking import unit_ranks


def prototype_rank_change(
    scores: Tensor, perturbed_scores: Tensor, unit_ids: Tensor, active: Tensor | None = None
) -> Tensor:
    """Number of ranks by which each selected unit moves.

    Source: Schlinge et al. (2025), equation 6, after Sacha et al. (2024): ``|r' - r|`` with the rank among all active
    units, see :func:`~metrics.functional.unit_ranks`.

    Args:
        scores: ``(B, U)`` float.
        perturbed_scores: ``(B, U)`` float, or ``(B, k, U)`` with one perturbed image per selected unit.
        unit_ids: ``(B, k)`` int64 in ``[0, U)``; negative for an empty slot.
        active: ``(U,)`` bool; None for all.

    Returns:
        ``(B, k)`` float64 >= 0, lower is better; NaN in empty slots and where a score of the unit or of an active one
        is not finite.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> perturbed = torch.tensor([[9.0, 2.0, 5.0, 3.0]])
        >>> prototype_rank_change(torch.tensor([[9.0, 7.0, 5.0, 3.0]]), perturbed, torch.tensor([[0, 1]]))
        tensor([[0., 2.]], dtype=torch.float64)
    """
    check_tensor("scores", scores, (len(unit_ids), "U"), "float")
    slots = () if perturbed_scores.ndim == 2 else (unit_ids.shape[-1],)
    check_tensor("perturbed_scores", perturbed_scores, (len(scores), *slots, scores.shape[1]), "float")
    ranks, perturbed = unit_ranks(scores, unit_ids, active), unit_ranks(perturbed_scores, unit_ids, active)
    return (perturbed - ranks).abs().double().masked_fill((ranks < 0) | (perturbed < 0), torch.nan)


def classification_rank_change(logits: Tensor, perturbed_logits: Tensor) -> Tensor:
    """The rank of the predicted class after the perturbation, where 0 is the best.

    Source: Schlinge et al. (2025), equation 12. The prediction is the largest clean logit, ties to the lowest class;
    its clean rank is 0. Not for multilabel data.

    Args:
        logits: ``(B, K)`` float.
        perturbed_logits: ``(B, K)`` float, on the perturbed image.

    Returns:
        ``(B,)`` float64 >= 0, lower is better; NaN where a logit is not finite.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> classification_rank_change(torch.tensor([[2.0, 1.0, 0.0, -1.0]]), torch.tensor([[0.0, 1.0, 2.0, 3.0]]))
        tensor([3.], dtype=torch.float64)
    """
    check_tensor("logits", logits, ("B", "K"), "float")
    check_tensor("perturbed_logits", perturbed_logits, tuple(logits.shape), "float")
    return prototype_rank_change(logits, perturbed_logits, logits.argmax(dim=1, keepdim=True)).squeeze(1)


class PrototypeRankChange(ImageMean):
    """Mean number of ranks by which the top-k units move (PRC, lower is better).

    Source: Schlinge et al. (2025), equation 6, after Sacha et al. (2024): ``|r' - r|``, with r the number of active
    units whose score is strictly larger than that of the unit in ``scores``, and r' the same in ``perturbed_scores``.

    Args:
        active: ``(U,)`` bool, units that are ranked; None for all.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        scores: ``(B, U)`` float, clean images.
        perturbed_scores: ``(B, U)`` float, or ``(B, k, U)`` with one perturbed image per selected unit.
        unit_ids: ``(B, k)`` int64, the top-k units of the clean images, -1 for an empty slot.
        valid: ``(B, k)`` bool, False where the perturbation was undefined; None for all.

    Example:
        >>> import torch
        >>> metric = PrototypeRankChange()
        >>> perturbed = torch.tensor([[9.0, 2.0, 5.0, 3.0]])  # unit 1 falls from rank 1 to 3, unit 0 stays
        >>> metric.update(torch.tensor([[9.0, 7.0, 5.0, 3.0]]), perturbed, torch.tensor([[0, 1]]))
        >>> metric.compute()
        tensor(1., dtype=torch.float64)
    """

    name = "prc"
    unit = "ranks"
    value_range = (0.0, math.inf)
    reads = ("scores", "perturbed_scores", "unit_ids", "valid")
    higher_is_better = False
    active: Tensor | None

    def __init__(self, active: Tensor | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.register_buffer("active", active, persistent=False)

    def update(self, scores: Tensor, perturbed_scores: Tensor, unit_ids: Tensor, valid: Tensor | None = None) -> None:
        """Add a batch."""
        self._accumulate(prototype_rank_change(scores, perturbed_scores, unit_ids, self.active), valid)


class ClassificationRankChange(ImageMean):
    """Mean rank of the predicted class after the perturbation (CRC, lower is better).

    Source: Schlinge et al. (2025), equation 12: the number of classes with a strictly larger logit in
    ``perturbed_logits`` than the prediction, the class of the largest of ``logits``; ties go to the lowest class. Not
    defined for multilabel data.

    Args:
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        logits: ``(B, K)`` float, clean images.
        perturbed_logits: ``(B, K)`` float, perturbed images.

    Example:
        >>> import torch
        >>> metric = ClassificationRankChange()
        >>> metric.update(torch.tensor([[2.0, 1.0, 0.0, -1.0]]), torch.tensor([[0.0, 1.0, 2.0, 3.0]]))
        >>> metric.compute()
        tensor(3., dtype=torch.float64)
    """

    name = "crc"
    unit = "ranks"
    value_range = (0.0, math.inf)
    reads = ("logits", "perturbed_logits")
    higher_is_better = False

    def update(self, logits: Tensor, perturbed_logits: Tensor) -> None:
        """Add a batch."""
        self._accumulate(classification_rank_change(logits, perturbed_logits))


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
CRC = MetricEntry(
    "continuity/crc",
    ClassificationRankChange,
    Words(
        question="How many ranks does the predicted class lose?",
        name="Classification rank change",
        formula="mean rank of the clean prediction after the perturbation",
        source="[S25] 12",
        misread="One image that falls to the last class weighs K − 1; 0 where the prediction stays, right or wrong.",
    ),
    needs=("single_label",),
    view="continuity",
)
