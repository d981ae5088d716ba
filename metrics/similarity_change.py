"""How much the scores of units change under a perturbation."""

from __future__ import annotations

from torch import Tensor

from metrics.functional.primitives.ranking import gather_units
from metrics.functional.similarity_change import prototype_similarity_change
from metrics.image_mean import ImageMean


class PrototypeSimilarityChange(ImageMean):
    """Mean change of the scores of the top units, as a share of the score.

    Source and definition: :func:`metrics.functional.prototype_similarity_change`. Interval: normal over images.

    Args:
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Example:
        >>> import torch
        >>> metric = PrototypeSimilarityChange()
        >>> metric.update(torch.tensor([[2.0, 2.0, 9.0]]), torch.tensor([[1.5, 3.0, 0.0]]), torch.tensor([[0, 1]]))
        >>> metric.compute()
        tensor(0.3750, dtype=torch.float64)
    """

    name = "psc"
    unit = "fraction"
    reads = ("scores", "perturbed_scores", "unit_ids", "valid")
    higher_is_better = False

    def update(self, scores: Tensor, perturbed_scores: Tensor, unit_ids: Tensor, valid: Tensor | None = None) -> None:
        """Add a batch.

        Args:
            scores: ``(B, U)`` float.
            perturbed_scores: ``(B, U)`` float, or ``(B, k, U)`` with one perturbed image per selected unit.
            unit_ids: ``(B, k)`` int64, -1 for an empty slot.
            valid: ``(B, k)`` bool; None for all.
        """
        if perturbed_scores.ndim == 3:
            images = perturbed_scores.flatten(end_dim=1)  # one row per perturbed image, with one unit each
            perturbed = gather_units(images, unit_ids.reshape(-1, 1)).view(unit_ids.shape)
        else:
            perturbed = gather_units(perturbed_scores, unit_ids)
        self._accumulate(prototype_similarity_change(gather_units(scores, unit_ids), perturbed), valid)
