"""Change of the maps of units under a perturbation, cell by cell (PAC)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from protometry.metrics.base import ImageMean
from protometry.metrics.change.both_perturbations import both_perturbations
from protometry.metrics.entry import Words
from protometry.metrics.primitives.checks import check_tensor
from protometry.metrics.primitives.intersection_over_union import weighted_intersection_over_union
from protometry.metrics.primitives.regions import all_finite
from protometry.metrics.primitives.variants import Variant, check_variant


def prototype_activation_change(maps: Tensor, perturbed_maps: Tensor, variant: Variant = "paper") -> Tensor:
    """Change of the map of each unit, cell by cell.

    Source: Schlinge et al. (2025), equation 10: ``1 - Σ min(a, a') / Σ max(a, a')`` over the cells. Of signed maps the
    positive part counts. ``variant="quanproto"`` sorts both maps first, which ignores where the activation lies.

    Args:
        maps: ``(B, k, h, w)`` float.
        perturbed_maps: ``(B, k, h, w)`` float, of the same units on the perturbed image.
        variant: reading of the formula.

    Returns:
        ``(B, k)`` float64 in [0, 1], lower is better; NaN where no cell is positive or a map is not finite.
    """
    check_variant(variant)
    check_tensor("maps", maps, ("B", "k", "h", "w"), "float")
    check_tensor("perturbed_maps", perturbed_maps, tuple(maps.shape), "float")
    both = torch.stack([maps, perturbed_maps]).flatten(start_dim=3)
    defined = all_finite(both, dim=-1).all(dim=0)
    if variant == "quanproto":
        both = both.sort(descending=True).values
    clean, perturbed = both.double().clamp(min=0)
    return (1 - weighted_intersection_over_union(clean, perturbed)).masked_fill(~defined, torch.nan)


class PrototypeActivationChange(ImageMean):
    """Mean :func:`prototype_activation_change` of the top-k units (PAC, lower is better).

    Example:
        >>> metric = PrototypeActivationChange()
        >>> metric.update(torch.tensor([[[[3.0, 1.0]]]]), torch.tensor([[[[1.0, 3.0]]]]))  # 1 - (1 + 1) / (3 + 3)
        >>> metric.compute()
        tensor(0.6667, dtype=torch.float64)
    """

    unit = "fraction"
    higher_is_better = False

    def __init__(self, variant: Variant = "paper", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.variant: Variant = variant

    def update(self, maps: Tensor, perturbed_maps: Tensor, valid: Tensor | None = None) -> None:
        self._accumulate(prototype_activation_change(maps, perturbed_maps, self.variant), valid)


PAC = both_perturbations(
    "pac",
    PrototypeActivationChange,
    Words(
        question="How much do the scores of a unit change over the image?",
        name="Prototype activation change",
        formula="mean of 1 − Σ min(a, a′) / Σ max(a, a′) over cells",
        source="[S25] 10",
        misread="Negative values of a map count as 0. The published tables sorted the cells first (`--variant "
        "quanproto`). Not the `pac` of misalignment.",
    ),
    lambda facts: PrototypeActivationChange(facts.variant),
    misread="As in completeness.",
)
