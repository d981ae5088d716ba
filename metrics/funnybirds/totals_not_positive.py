"""How many explanations contain no evidence for the class."""

from __future__ import annotations

import math

from torch import Tensor

from protometry.metrics.base import ImageMean
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_tensor


class TotalsNotPositive(ImageMean):
    """Share of explanations whose attribution sums to zero or less (lower is better).

    Inputs:
        label_totals: ``(B,)`` float, the sum of the explanation of the label.

    Example:
        >>> import torch
        >>> metric = TotalsNotPositive()
        >>> metric.update(torch.tensor([2.0, 0.0, -1.0, 3.0]))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    unit = "fraction"
    interval = "wilson"
    higher_is_better = False

    def update(self, label_totals: Tensor) -> None:
        check_tensor("label_totals", label_totals, ("B",), "float")
        self._accumulate((label_totals <= 0).double().masked_fill(~label_totals.isfinite(), math.nan))


TOTALS_NOT_POSITIVE = MetricEntry(
    "funnybirds/totals_not_positive",
    TotalsNotPositive,
    Words(
        question="How many explanations contain no evidence for the class?",
        name="Totals not positive",
        formula="share of explanations of the label whose sum is ≤ 0",
        source="none",
        misread="For these, P by share of the sum is permissive; boxes do not use this rule.",
    ),
    needs=("class_parts", "single_label", "interventions", "label_map", "class_maps", "part_shares"),
    view="part_removal",
)
