"""Change of the scores of units under a perturbation."""

from __future__ import annotations

import math

from torch import Tensor

from metrics.base import ImageMean
from metrics.functional.primitives.ranking import gather_units
from metrics.functional.similarity_change import prototype_similarity_change


class PrototypeSimilarityChange(ImageMean):
    """Mean relative change of the scores of the top-k units (PSC, lower is better).

    Source: Schlinge et al. (2025), equation 5, after Sacha et al. (2024): ``|s - s'| / s``, with s and s' the scores of
    a unit in ``scores`` and ``perturbed_scores``. The score is what the head of the model consumes; the published
    tables took the maximum of the map. Undefined where s is not positive.

    Args:
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        scores: ``(B, U)`` float, clean images.
        perturbed_scores: ``(B, U)`` float, or ``(B, k, U)`` with one perturbed image per selected unit.
        unit_ids: ``(B, k)`` int64, the top-k units of the clean images, -1 for an empty slot.
        valid: ``(B, k)`` bool, False where the perturbation was undefined; None for all.

    Example:
        >>> import torch
        >>> metric = PrototypeSimilarityChange()
        >>> metric.update(torch.tensor([[2.0, 2.0, 9.0]]), torch.tensor([[1.5, 3.0, 0.0]]), torch.tensor([[0, 1]]))
        >>> metric.compute()  # (0.5 / 2 + 1 / 2) / 2
        tensor(0.3750, dtype=torch.float64)
    """

    name = "psc"
    unit = "fraction"
    value_range = (0.0, math.inf)
    reads = ("scores", "perturbed_scores", "unit_ids", "valid")
    higher_is_better = False

    def update(self, scores: Tensor, perturbed_scores: Tensor, unit_ids: Tensor, valid: Tensor | None = None) -> None:
        """Add a batch."""
        if perturbed_scores.ndim == 3:
            images = perturbed_scores.flatten(end_dim=1)  # one row per perturbed image, with one unit each
            perturbed = gather_units(images, unit_ids.reshape(-1, 1)).view(unit_ids.shape)
        else:
            perturbed = gather_units(perturbed_scores, unit_ids)
        self._accumulate(prototype_similarity_change(gather_units(scores, unit_ids), perturbed), valid)
