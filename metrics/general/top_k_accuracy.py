"""Share of images whose true class is among the k best."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from protometry.metrics.base import ImageMean
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.general.accuracy import check_single_label, own_logits, zero_one


def top_k_accuracy(logits: Tensor, labels: Tensor, k: int = 3, abstained: Tensor | None = None) -> Tensor:
    """Whether the true class is among the k best.

    Source: Schlinge et al. (2025), section 5. Fewer than k classes are better, where better is a larger logit or an
    equal one at a lower index; constant logits therefore do not score 1.

    Args:
        logits: ``(B, K)`` float with K > k.
        labels: ``(B,)`` int64 in ``[0, K)``.
        k: number of classes that count as a hit, at least 1.
        abstained: ``(B,)`` bool, the model decided nothing, which is wrong; by default it always decides.

    Returns:
        ``(B,)`` float64, 1 or 0; NaN where a logit is not finite. Higher is better.

    Example:
        >>> top_k_accuracy(torch.tensor([[2.0, 2.0, 0.0], [2.0, 2.0, 0.0]]), torch.tensor([1, 2]), k=2)
        tensor([1., 0.], dtype=torch.float64)
    """
    check_single_label(logits, labels, abstained)
    if not 1 <= k < logits.shape[1]:
        raise ValueError(
            f"Expected argument `k` to be at least 1 and below the number of classes {logits.shape[1]}, but got {k}."
        )
    own, index = own_logits(logits, labels)[:, None], torch.arange(logits.shape[1], device=logits.device)
    better = (logits > own) | ((logits == own) & (index < labels[:, None]))
    return zero_one(better.sum(dim=1) < k, logits, abstained)


class TopKAccuracy(ImageMean):
    """Share of images whose true class is among the k best (higher is better)."""

    unit = "fraction"
    higher_is_better = True
    interval = "wilson"

    def __init__(self, k: int = 3, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.k = k

    def update(self, logits: Tensor, labels: Tensor, abstained: Tensor | None = None) -> None:
        self._accumulate(top_k_accuracy(logits, labels, self.k, abstained))


TOP3_ACCURACY = MetricEntry(
    "general/top3_accuracy",
    TopKAccuracy,
    Words(
        question="How often is the right class among the three likeliest?",
        name="Top-3 accuracy",
        formula="share of images with fewer than 3 classes above the true one",
        source="[S25] 5",
        misread="With few classes chance alone is high: 3 / K.",
    ),
    needs=("single_label", "num_classes"),
)
