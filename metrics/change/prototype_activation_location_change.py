"""Change of the active regions of units under a perturbation (PALC)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from protometry.metrics.base import ImageMean
from protometry.metrics.change.both_perturbations import both_perturbations
from protometry.metrics.entry import Words
from protometry.metrics.primitives.checks import check_tensor
from protometry.metrics.primitives.intersection_over_union import mask_intersection_over_union
from protometry.metrics.primitives.regions import binarize_maps


def prototype_activation_location_change(maps: Tensor, perturbed_maps: Tensor, threshold: float = 0.5) -> Tensor:
    """Change of the region above half of the range of each map.

    Source: Schlinge et al. (2025), equation 9: 1 - IoU of both maps, each binarised on its own by
    :func:`~protometry.metrics.functional.binarize_maps`.

    Args:
        maps: ``(B, k, h, w)`` float.
        perturbed_maps: ``(B, k, h, w)`` float, of the same units on the perturbed image.
        threshold: in [0, 1), of the min-max scaled map.

    Returns:
        ``(B, k)`` float64 in [0, 1], lower is better; NaN where a map is flat or not finite.
    """
    check_tensor("maps", maps, ("B", "k", "h", "w"), "float")
    check_tensor("perturbed_maps", perturbed_maps, tuple(maps.shape), "float")
    return 1 - mask_intersection_over_union(binarize_maps(maps, threshold), binarize_maps(perturbed_maps, threshold))


class PrototypeActivationLocationChange(ImageMean):
    """Mean :func:`prototype_activation_location_change` of the top-k units (PALC, lower is better).

    Example:
        >>> import torch
        >>> metric = PrototypeActivationLocationChange()
        >>> metric.update(torch.tensor([[[[0.0, 1.0, 1.0]]]]), torch.tensor([[[[0.0, 0.0, 1.0]]]]))  # 1 of 2 cells
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    unit = "fraction"
    higher_is_better = False

    def __init__(self, threshold: float = 0.5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.threshold = threshold

    def update(self, maps: Tensor, perturbed_maps: Tensor, valid: Tensor | None = None) -> None:
        self._accumulate(prototype_activation_location_change(maps, perturbed_maps, self.threshold), valid)


PALC = both_perturbations(
    "palc",
    PrototypeActivationLocationChange,
    Words(
        question="How far does the region of high scores of a unit move?",
        name="Prototype activation location change",
        formula="mean of 1 − IoU of the cells above half of the range of each map",
        source="[S25] 9",
        misread="Maps are scaled to their range first: the noise of a nearly flat map counts like a peak.",
    ),
    misread="A model that ignores the image scores 0, the best value, in all of continuity.",
)
