"""How much a hybrid model decides outside its units."""

from __future__ import annotations

import torch
from torch import Tensor

from protometry.metrics.base import ImageMean
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_tensor


def residual_share(logits: Tensor, residual: Tensor, unit_logits: Tensor) -> Tensor:
    """Share of the residual in the logit of the predicted class.

    Source: none; the hybrid models of Yuksekgonul et al. (2023) add such a residual. ``|r| / (|r| + |e|)`` of the class
    with the largest logit (the lowest on ties), with r = ``residual`` and e = ``unit_logits``.

    Args:
        logits: ``(B, K)`` float.
        residual: ``(B, K)`` float, the part of the logits that no unit explains.
        unit_logits: ``(B, K)`` float, what the units contribute, without bias.

    Returns:
        ``(B,)`` float64 in [0, 1]; NaN where a number is not finite, or both parts are 0.

    Example:
        >>> residual_share(torch.tensor([[3.0, 1.0]]), torch.tensor([[-1.0, 9.0]]), torch.tensor([[4.0, 0.0]]))
        tensor([0.2000], dtype=torch.float64)
    """
    check_tensor("logits", logits, ("B", "K"), "float")
    check_tensor("residual", residual, tuple(logits.shape), "float")
    check_tensor("unit_logits", unit_logits, tuple(logits.shape), "float")
    predicted = logits.argmax(dim=1, keepdim=True)
    outside, inside = (part.double().gather(1, predicted)[:, 0].abs() for part in (residual, unit_logits))
    finite = torch.isfinite(logits).all(dim=1) & torch.isfinite(outside + inside)
    return torch.where(finite, outside / (outside + inside), torch.nan)  # 0 / 0 is NaN


class ResidualShare(ImageMean):
    """Mean share of the residual in the logit of the predicted class (lower is better)."""

    unit = "fraction"
    higher_is_better = False

    def update(self, logits: Tensor, residual: Tensor, unit_logits: Tensor) -> None:
        self._accumulate(residual_share(logits, residual, unit_logits))


RESIDUAL_SHARE = MetricEntry(
    "concepts/residual_share",
    ResidualShare,
    Words(
        question="How much of the decision bypasses the concepts?",
        name="Share of the residual",
        formula="mean of abs(r) / (abs(r) + abs(e)) of the predicted class, r = residual, e = what the units "
        "contribute",
        source="none",
        misread="Only for models with a residual. A small share may still decide: compare accuracy without it.",
        finding="{value} of a decision bypasses the concepts.",
    ),
    needs=("single_label", "residual"),
)
