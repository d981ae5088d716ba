"""Whether parts and objects that the model does not use are called important."""

from __future__ import annotations

from torch import Tensor

from protometry.metrics.entry import Words
from protometry.metrics.funnybirds.threshold_mean import ThresholdMean
from protometry.metrics.primitives.checks import check_tensor


def irrelevant_candidates(drops: Tensor, label_logits: Tensor, ratio: float = 0.05) -> Tensor:
    """Parts and background objects that the model does not use for the label.

    Source: Hesse et al. (2023), distractibility: those whose removal lowers the logit f of the label by less than
    ``ratio · |f|``, or does not lower it at all.

    Args:
        drops: ``(B, C)`` float, drop of the logit of the label without each candidate; NaN where there is none.
        label_logits: ``(B,)`` float.
        ratio: share of the logit.

    Returns:
        ``(B, C)`` bool.

    Example:
        >>> import torch
        >>> irrelevant_candidates(torch.tensor([[0.4, 0.6, -3.0, 0.5]]), torch.tensor([10.0])).tolist()
        [[True, False, True, False]]
    """
    check_tensor("drops", drops, ("B", "C"), "float")
    check_tensor("label_logits", label_logits, (len(drops),), "float")
    changes = drops.double()
    return (changes < ratio * label_logits.double().abs()[:, None]) | (changes <= 0)


def distractibility(label_candidates: Tensor, irrelevant: Tensor) -> Tensor:
    """How few of the parts and background objects that do not matter are called important (D).

    Source: Hesse et al. (2023): ``1 − |P_t ∩ Irr| / |Irr|``.

    Args:
        label_candidates: ``(B, T, C)`` bool, important parts and background objects P_t of the explanation of the
            label.
        irrelevant: ``(B, C)`` bool, Irr, see :func:`irrelevant_candidates`.

    Returns:
        ``(B, T)`` float64 in [0, 1], higher is better; NaN where nothing is irrelevant.
    """
    check_tensor("label_candidates", label_candidates, ("B", "T", "C"), "bool")
    check_tensor("irrelevant", irrelevant, (label_candidates.shape[0], label_candidates.shape[2]), "bool")
    distracted = (label_candidates & irrelevant[:, None]).sum(dim=2)
    return 1 - distracted.double() / irrelevant.sum(dim=1)[:, None]


class Distractibility(ThresholdMean):
    """Mean share of the irrelevant parts and background objects that are not called important (D, higher is better).

    Example:
        >>> import torch
        >>> metric, parts = Distractibility(num_thresholds=2), torch.tensor([[[True, True], [True, False]]])
        >>> metric.update(parts, torch.tensor([[True, True]]), torch.tensor([0]))
        >>> metric.compute()
        tensor([0.0000, 0.5000], dtype=torch.float64)
    """

    def update(self, label_candidates: Tensor, irrelevant: Tensor, sample_ids: Tensor) -> None:
        self._accumulate(distractibility(label_candidates, irrelevant), sample_ids)


D_WORDS = Words(
    question="Are parts that do not matter called unimportant?",
    name="Distractibility",
    formula="mean of 1 − #(P(y) ∩ Irr) / #Irr",
    source="[H23a]",
    misread="Declaring nothing important scores 1. A model that ignores a part makes it irrelevant.",
)
