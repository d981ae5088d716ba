"""Change of the class probabilities under a perturbation (CAC)."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from protometry.metrics.base import ImageMean
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_choice, check_tensor
from protometry.metrics.primitives.intersection_over_union import weighted_intersection_over_union
from protometry.metrics.primitives.regions import all_finite
from protometry.metrics.primitives.variants import Variant, check_variant

Link = Literal["softmax", "sigmoid"]


def classification_activation_change(
    logits: Tensor, perturbed_logits: Tensor, link: Link = "softmax", variant: Variant = "paper"
) -> Tensor:
    """Change of the class probabilities.

    Source: Schlinge et al. (2025), equation 11: ``1 - Σ min(p, p') / Σ max(p, p')`` over the classes. With the softmax
    it equals 2t / (1 + t), where t is the total variation distance; outputs that are log-probabilities pass through it
    unchanged. ``variant="quanproto"`` takes the logits themselves, both sorted in descending order, and is unbounded.

    Args:
        logits: ``(B, K)`` float.
        perturbed_logits: ``(B, K)`` float, on the perturbed image.
        link: from logits to probabilities: ``"softmax"``, or ``"sigmoid"`` for multilabel data.
        variant: reading of the formula.

    Returns:
        ``(B,)`` float64 in [0, 1], lower is better; NaN where a logit is not finite.
    """
    check_variant(variant)
    check_choice("link", link, get_args(Link))
    check_tensor("logits", logits, ("B", "K"), "float")
    check_tensor("perturbed_logits", perturbed_logits, tuple(logits.shape), "float")
    clean, perturbed = logits.double(), perturbed_logits.double()
    defined = all_finite(clean, dim=1) & all_finite(perturbed, dim=1)
    if variant == "quanproto":
        clean, perturbed = clean.sort(descending=True).values, perturbed.sort(descending=True).values
    elif link == "sigmoid":
        clean, perturbed = clean.sigmoid(), perturbed.sigmoid()
    else:
        clean, perturbed = clean.softmax(dim=1), perturbed.softmax(dim=1)
    return (1 - weighted_intersection_over_union(clean, perturbed)).masked_fill(~defined, torch.nan)


class ClassificationActivationChange(ImageMean):
    """Mean :func:`classification_activation_change` (CAC, lower is better).

    Example:
        >>> metric = ClassificationActivationChange()
        >>> metric.update(torch.tensor([[0.5, 0.3, 0.2]]).log(), torch.tensor([[0.3, 0.5, 0.2]]).log())
        >>> metric.compute()  # 1 - (0.3 + 0.3 + 0.2) / (0.5 + 0.5 + 0.2)
        tensor(0.3333, dtype=torch.float64)
    """

    unit = "fraction"
    higher_is_better = False

    def __init__(self, link: Link = "softmax", variant: Variant = "paper", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.link: Link = link
        self.variant: Variant = variant
        if variant == "quanproto":  # of logits, which may be negative
            self.value_range = (-math.inf, math.inf)

    def update(self, logits: Tensor, perturbed_logits: Tensor) -> None:
        self._accumulate(classification_activation_change(logits, perturbed_logits, self.link, self.variant))


CAC = MetricEntry(
    "continuity/cac",
    ClassificationActivationChange,
    Words(
        question="How much do the probabilities of the classes change?",
        name="Classification activation change",
        formula="mean of 1 − Σ min(p, p′) / Σ max(p, p′) over class probabilities",
        source="[S25] 11",
        misread="For a total variation distance t it is 2t / (1 + t). The published tables compared sorted raw logits.",
    ),
    lambda facts: ClassificationActivationChange("sigmoid" if facts.multi_label else "softmax", facts.variant),
    view="continuity",
)
