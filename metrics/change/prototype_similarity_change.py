"""Change of the scores of units under a perturbation (PSC)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from protometry.metrics.base import ImageMean
from protometry.metrics.change.both_perturbations import both_perturbations
from protometry.metrics.entry import Words
from protometry.metrics.primitives.checks import check_tensor
from protometry.metrics.primitives.ranking import check_scores, gather_units


def prototype_similarity_change(scores: Tensor, perturbed_scores: Tensor) -> Tensor:
    """Relative change of the score of each unit.

    Source: Schlinge et al. (2025), equation 5, after Sacha et al. (2024): ``|s - s'| / s``. The score is what the
    model's head consumes; the published tables took the maximum of the map.

    Args:
        scores: ``(B, k)`` float.
        perturbed_scores: ``(B, k)`` float, of the same units on the perturbed image.

    Returns:
        ``(B, k)`` float64 >= 0, lower is better; NaN where ``scores`` is not positive or either is not finite.
    """
    check_tensor("scores", scores, ("B", "k"), "float")
    check_tensor("perturbed_scores", perturbed_scores, tuple(scores.shape), "float")
    clean, perturbed = scores.double(), perturbed_scores.double()
    change = (clean - perturbed).abs() / clean
    return change.masked_fill((clean <= 0) | ~change.isfinite(), torch.nan)


class PrototypeSimilarityChange(ImageMean):
    """Mean :func:`prototype_similarity_change` of the top-k units (PSC, lower is better).

    Example:
        >>> metric = PrototypeSimilarityChange()
        >>> metric.update(torch.tensor([[2.0, 2.0, 9.0]]), torch.tensor([[1.5, 3.0, 0.0]]), torch.tensor([[0, 1]]))
        >>> metric.compute()  # (0.5 / 2 + 1 / 2) / 2
        tensor(0.3750, dtype=torch.float64)
    """

    unit = "fraction"
    value_range = (0.0, math.inf)
    higher_is_better = False

    def update(self, scores: Tensor, perturbed_scores: Tensor, unit_ids: Tensor, valid: Tensor | None = None) -> None:
        check_scores(scores, perturbed_scores, unit_ids)
        if perturbed_scores.ndim == 3:
            images = perturbed_scores.flatten(end_dim=1)  # one row per perturbed image, with one unit each
            perturbed = gather_units(images, unit_ids.reshape(-1, 1)).view(unit_ids.shape)
        else:
            perturbed = gather_units(perturbed_scores, unit_ids)
        self._accumulate(prototype_similarity_change(gather_units(scores, unit_ids), perturbed), valid)


PSC = both_perturbations(
    "psc",
    PrototypeSimilarityChange,
    Words(
        question="How much does the score of a unit change?",
        name="Prototype similarity change",
        formula="mean of abs(s − s′) / s",
        source="[S25] 5, [S24]",
        misread="It exceeds 100 % where the score more than doubles or turns negative, and a small s makes it explode; "
        "it does not say whether scores rise or fall.",
        finding="Noise on all but what a unit marks changes its score by {value}.",
    ),
    source="[S25] 5",
    misread="It exceeds 100 %, as in completeness.",
    finding="",
)
