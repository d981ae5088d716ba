"""Whether the decision stays when objects of the background are removed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from protometry.metrics.base import ImageRatio
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.funnybirds.distractibility import irrelevant_candidates
from protometry.metrics.primitives.checks import check_tensor


def background_independence(
    background_drops: Tensor, label_logits: Tensor, background_valid: Tensor, ratio: float = 0.05
) -> tuple[Tensor, Tensor]:
    """How many background objects do not matter to the label.

    Source: Hesse et al. (2023). An object matters if removing it gives ``drop ≥ ratio · |f|`` and ``drop > 0``, where a
    drop is the raw logit of a class on the image minus that on the image without something, ``f(x) − f(x∖S)``.

    Args:
        background_drops: ``(B, M)`` float, drop of the logit f of the label without each object.
        label_logits: ``(B,)`` float.
        background_valid: ``(B, M)`` bool, False for padding.
        ratio: share of the logit.

    Returns:
        Independent objects and objects of each image, ``(B,)`` float64 each, higher is better; the first is NaN where a
        logit is not finite.
    """
    check_tensor("background_valid", background_valid, tuple(background_drops.shape), "bool")
    independent = irrelevant_candidates(background_drops, label_logits, ratio) & background_valid
    broken = ~background_drops.isfinite() & background_valid
    undefined = broken.any(dim=1) | ~label_logits.isfinite()
    return independent.sum(dim=1).double().masked_fill(undefined, torch.nan), background_valid.sum(dim=1).double()


class BackgroundIndependence(ImageRatio):
    """Share of the background objects that do not matter to the label (higher is better).

    Example:
        >>> metric, valid = BackgroundIndependence(), torch.ones(1, 3, dtype=torch.bool)
        >>> metric.update(torch.tensor([[0.5, 0.1, -2.0]]), torch.tensor([10.0]), valid)
        >>> metric.compute()
        tensor(0.6667, dtype=torch.float64)
    """

    unit = "fraction"
    higher_is_better = True

    def __init__(self, ratio: float = 0.05, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.ratio = ratio

    def update(self, background_drops: Tensor, label_logits: Tensor, background_valid: Tensor) -> None:
        self._accumulate(*background_independence(background_drops, label_logits, background_valid, self.ratio))


BACKGROUND_INDEPENDENCE = MetricEntry(
    "funnybirds/bi",
    BackgroundIndependence,
    Words(
        question="Does the decision stay when objects of the background are removed?",
        name="Background independence",
        formula="1 − #{objects with o_y(x) − o_y(x′) ≥ 5 % of abs(o_y(x)) and > 0} / #objects",
        source="[H23a]",
        misread="A property of the model, not of its explanations; a large offset of the logits makes every model "
        "independent.",
    ),
    needs=("class_parts", "single_label", "interventions"),
    view="part_removal",
)
