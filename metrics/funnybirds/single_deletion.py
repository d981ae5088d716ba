"""Whether a part matters as much as the explanation says."""

from __future__ import annotations

import torch
from torch import Tensor

from protometry.metrics.base import ImageMean
from protometry.metrics.entry import Words
from protometry.metrics.primitives.checks import check_tensor


def single_deletion(label_importance: Tensor, part_drops: Tensor) -> Tensor:
    """Whether the importance of parts is in the order of what removing them does (SD).

    Source: Opłatek et al. (2024), equation 1, after Hesse et al. (2023): ``1/2 + ρ/2`` with Spearman's ρ, by average
    ranks, of the importance and the drops of the parts.

    Args:
        label_importance: ``(B, N)`` float, importance of each part in the explanation of the label.
        part_drops: ``(B, N)`` float, drop of the logit of the label without each part; 0 for a part that is hidden.

    Returns:
        ``(B,)`` float64 in [0, 1], higher is better, 0.5 expected of random importance; NaN where all of one side are
        equal or one is not finite.

    Example:
        >>> single_deletion(torch.tensor([[5.0, 1.0, 4.0, 0.0, 2.0]]), torch.tensor([[3.0, 1.0, 2.0, 0.0, 0.0]]))
        tensor([0.9104], dtype=torch.float64)
    """
    check_tensor("label_importance", label_importance, ("B", "N"), "float")
    check_tensor("part_drops", part_drops, tuple(label_importance.shape), "float")
    x, y = _centred_ranks(label_importance), _centred_ranks(part_drops)
    correlation = (x * y).sum(dim=1) / (x.square().sum(dim=1) * y.square().sum(dim=1)).sqrt()
    undefined = ~(label_importance.isfinite() & part_drops.isfinite()).all(dim=1)
    return (0.5 + correlation / 2).masked_fill(undefined, torch.nan)


def _centred_ranks(values: Tensor) -> Tensor:
    """``(B, N)`` float64 average ranks minus their mean, which no rounding touches: differences of two counts."""
    values = values.double()
    above = values[:, :, None] > values[:, None]
    return (above.sum(dim=2) - above.sum(dim=1)).double() / 2


class SingleDeletion(ImageMean):
    """Mean rank correlation of the importance of parts with what removing them does (SD, higher is better)."""

    unit = "fraction"
    higher_is_better = True

    def update(self, label_importance: Tensor, part_drops: Tensor) -> None:
        self._accumulate(single_deletion(label_importance, part_drops))


SD_WORDS = Words(
    question="Does a part matter as much as the explanation says?",
    name="Single deletion",
    formula="mean of 1/2 + ρ/2, Spearman's ρ of PI(y) with the drops of o_y without each part",
    source="[O24] 1",
    misread="Chance is 1/2.",
)
