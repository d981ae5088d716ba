"""Kernel: change of the scores of units under a perturbation."""

from __future__ import annotations

import torch
from torch import Tensor

from metrics.functional.primitives.checks import check_tensor


def prototype_similarity_change(scores: Tensor, perturbed_scores: Tensor) -> Tensor:
    """Relative change of the score of each unit.

    Source: Schlinge et al. (2025), equation 5, after Sacha et al. (2024): ``|s - s'| / s``. The score is what the
    model's head consumes; the published tables took the maximum of the map.

    Args:
        scores: ``(B, k)`` float.
        perturbed_scores: ``(B, k)`` float, of the same units on the perturbed image.

    Returns:
        ``(B, k)`` float64 >= 0, lower is better; NaN where ``scores`` is not positive or either is not finite.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> prototype_similarity_change(torch.tensor([[2.0, 2.0, 0.0]]), torch.tensor([[1.5, 3.0, 1.0]]))
        tensor([[0.2500, 0.5000,    nan]], dtype=torch.float64)
    """
    check_tensor("scores", scores, ("B", "k"), "float")
    check_tensor("perturbed_scores", perturbed_scores, tuple(scores.shape), "float")
    clean, perturbed = scores.double(), perturbed_scores.double()
    change = (clean - perturbed).abs() / clean
    return change.masked_fill((clean <= 0) | ~change.isfinite(), torch.nan)
