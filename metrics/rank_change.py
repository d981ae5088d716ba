"""How much the order of units and of classes changes under a perturbation."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from metrics.functional.rank_change import classification_rank_change, prototype_rank_change
from metrics.image_mean import ImageMean


class PrototypeRankChange(ImageMean):
    """Mean number of ranks by which the top units move.

    Source and definition: :func:`metrics.functional.prototype_rank_change`. Interval: normal over images.

    Args:
        active: ``(U,)`` bool; None for all.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Example:
        >>> import torch
        >>> metric = PrototypeRankChange()
        >>> perturbed = torch.tensor([[9.0, 2.0, 5.0, 3.0]])
        >>> metric.update(torch.tensor([[9.0, 7.0, 5.0, 3.0]]), perturbed, torch.tensor([[0, 1]]))
        >>> metric.compute()
        tensor(1., dtype=torch.float64)
    """

    name = "prc"
    unit = "ranks"
    reads = ("scores", "perturbed_scores", "unit_ids", "valid")
    higher_is_better = False
    active: Tensor | None

    def __init__(self, active: Tensor | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.register_buffer("active", active, persistent=False)

    def update(self, scores: Tensor, perturbed_scores: Tensor, unit_ids: Tensor, valid: Tensor | None = None) -> None:
        """Add a batch.

        Args:
            scores: ``(B, U)`` float.
            perturbed_scores: ``(B, U)`` float, or ``(B, k, U)`` with one perturbed image per selected unit.
            unit_ids: ``(B, k)`` int64, -1 for an empty slot.
            valid: ``(B, k)`` bool; None for all.
        """
        self._accumulate(prototype_rank_change(scores, perturbed_scores, unit_ids, self.active), valid)


class ClassificationRankChange(ImageMean):
    """Mean rank of the predicted class after the perturbation.

    Source and definition: :func:`metrics.functional.classification_rank_change`. Interval: normal over images.

    Args:
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Example:
        >>> import torch
        >>> metric = ClassificationRankChange()
        >>> metric.update(torch.tensor([[2.0, 1.0, 0.0, -1.0]]), torch.tensor([[0.0, 1.0, 2.0, 3.0]]))
        >>> metric.compute()
        tensor(3., dtype=torch.float64)
    """

    name = "crc"
    unit = "ranks"
    reads = ("logits", "perturbed_logits")
    higher_is_better = False

    def update(self, logits: Tensor, perturbed_logits: Tensor) -> None:
        """Add a batch.

        Args:
            logits: ``(B, K)`` float.
            perturbed_logits: ``(B, K)`` float.
        """
        self._accumulate(classification_rank_change(logits, perturbed_logits))
