"""Change of the values in the highlighted region of units under a perturbation (VAC)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from protometry.metrics.base import ImageMean
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_tensor
from protometry.metrics.primitives.intersection_over_union import weighted_intersection_over_union
from protometry.metrics.primitives.regions import clip_saliency, clipped_range, count_pixels


def largest_first(clipped: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Both maps as ``(B, k, n)``, sorted, with n large enough for every positive value of either."""
    sides = clipped.flatten(start_dim=2), other.flatten(start_dim=2)
    if clipped.device.type == "cpu" and clipped.numel():
        # About a twentieth of a clipped map is positive. Here it can be counted for free; elsewhere that would make the
        # device wait, so everything is sorted.
        positive = max(int(count_pixels(side > 0).amax()) for side in (clipped, other))
        return sides[0].topk(positive).values, sides[1].topk(positive).values
    return sides[0].sort(descending=True).values, sides[1].sort(descending=True).values


def visualization_activation_change(saliency: Tensor, perturbed_saliency: Tensor) -> Tensor:
    """Change of the values in the highlighted region of each unit, wherever it lies.

    Source: Schlinge et al. (2025), equation 7: ``1 - Σ min(v, v') / Σ max(v, v')`` over the values of the clipped
    saliency (:func:`~protometry.metrics.functional.clip_saliency`) sorted in descending order.

    Args:
        saliency: ``(B, k, H, W)`` float >= 0, clipped.
        perturbed_saliency: ``(B, k, H, W)`` float >= 0, of the same units on the perturbed image, clipped.

    Returns:
        ``(B, k)`` float64 in [0, 1], lower is better; NaN where a map has no positive value or is not finite.
    """
    check_tensor("saliency", saliency, ("B", "k", "H", "W"), "float")
    check_tensor("perturbed_saliency", perturbed_saliency, tuple(saliency.shape), "float")
    ranges = clipped_range("saliency", saliency), clipped_range("perturbed_saliency", perturbed_saliency)
    defined, other = (low.isfinite() & high.isfinite() & (high > 0) for low, high in ranges)
    change = 1 - weighted_intersection_over_union(*largest_first(saliency, perturbed_saliency))
    return change.masked_fill(~(defined & other), torch.nan)


class VisualizationActivationChange(ImageMean):
    """Mean :func:`visualization_activation_change` of the top-k units, once clipped (VAC, lower is better).

    Args:
        quantile: of each map, above which positive saliency is kept; None if the inputs are clipped already.

    Example:
        >>> metric = VisualizationActivationChange(quantile=0.5)
        >>> saliency = torch.tensor([[[[1.0, 2.0, 3.0, 4.0]]]])  # 3 and 4 are kept
        >>> metric.update(saliency, 2 * saliency)  # 1 - (4 + 3) / (8 + 6)
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    unit = "fraction"
    higher_is_better = False

    def __init__(self, quantile: float | None = 0.95, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.quantile = quantile

    def update(self, saliency: Tensor, perturbed_saliency: Tensor, valid: Tensor | None = None) -> None:
        saliency = clip_saliency(saliency, self.quantile)
        perturbed_saliency = clip_saliency(perturbed_saliency, self.quantile)
        self._accumulate(visualization_activation_change(saliency, perturbed_saliency), valid)


VAC = MetricEntry(
    "completeness/vac",
    VisualizationActivationChange,
    Words(
        question="How much does the relevance of the pixels change?",
        name="Visualization activation change",
        formula="mean of 1 − Σ min(v, v′) / Σ max(v, v′) over sorted relevance",
        source="[S25] 7",
        misread="Relevance may move anywhere without changing it.",
    ),
    lambda facts: VisualizationActivationChange(quantile=None),
    needs=("explainer",),
    view="completeness",
)
