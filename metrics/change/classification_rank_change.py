"""Rank that the predicted class keeps under a perturbation (CRC)."""

from __future__ import annotations

from torch import Tensor

from protometry.metrics.base import ImageMean
from protometry.metrics.change.prototype_rank_change import prototype_rank_change
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_tensor


def classification_rank_change(logits: Tensor, perturbed_logits: Tensor) -> Tensor:
    """The rank of the predicted class after the perturbation, where 0 is the best.

    Source: Schlinge et al. (2025), equation 12. The prediction is the largest clean logit, ties to the lowest class;
    its clean rank is 0. Not for multilabel data.

    Args:
        logits: ``(B, K)`` float.
        perturbed_logits: ``(B, K)`` float, on the perturbed image.

    Returns:
        ``(B,)`` float64 >= 0, lower is better; NaN where a logit is not finite.
    """
    check_tensor("logits", logits, ("B", "K"), "float")
    check_tensor("perturbed_logits", perturbed_logits, tuple(logits.shape), "float")
    return prototype_rank_change(logits, perturbed_logits, logits.argmax(dim=1, keepdim=True)).squeeze(1)


class ClassificationRankChange(ImageMean):
    """Mean :func:`classification_rank_change` (CRC, lower is better).

    Example:
        >>> import torch
        >>> metric = ClassificationRankChange()
        >>> metric.update(torch.tensor([[2.0, 1.0, 0.0, -1.0]]), torch.tensor([[0.0, 1.0, 2.0, 3.0]]))
        >>> metric.compute()
        tensor(3., dtype=torch.float64)
    """

    unit = "ranks"
    higher_is_better = False

    def update(self, logits: Tensor, perturbed_logits: Tensor) -> None:
        self._accumulate(classification_rank_change(logits, perturbed_logits))


CRC = MetricEntry(
    "continuity/crc",
    ClassificationRankChange,
    Words(
        question="How many ranks does the predicted class lose?",
        name="Classification rank change",
        formula="mean rank of the clean prediction after the perturbation",
        source="[S25] 12",
        misread="A prediction that falls to the last rank counts K − 1; an unchanged one counts 0, right or wrong.",
    ),
    needs=("single_label",),
    view="continuity",
)
