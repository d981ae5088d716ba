"""Changes of the order of units and of classes under a perturbation."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from metrics.base import ImageMean
from metrics.functional.rank_change import classification_rank_change, prototype_rank_change


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
