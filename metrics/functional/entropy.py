"""Kernel: entropy of the scores of a unit over the images."""

from __future__ import annotations

import torch
from torch import Tensor

from metrics.functional.primitives.checks import check_at_least, check_tensor
from metrics.functional.primitives.variants import Variant, check_variant

_NEGLIGIBLE_SHARE = 1e-3  # bins below it are dropped by the published tables


def _histogram(scores: Tensor, best: Tensor, bins: int) -> Tensor:
    """``(N, U)`` scores to ``(U, bins)`` counts of finite entries."""
    cells = (scores.double() / best * bins).floor().clamp(0, bins - 1)
    cells = cells.masked_fill(~scores.isfinite(), torch.nan)
    return torch.stack([(cells == cell).sum(dim=0) for cell in range(bins)], dim=1)


def prototype_entropy(scores: Tensor, bins: int = 10, variant: Variant = "paper") -> Tensor:
    """Entropy of the scores of every unit over all images.

    Source: Schlinge et al. (2025), equation 15: ``-Σ p log2 p`` over the non-empty of ``bins`` equal bins on [0, 1] of
    ``scores / max scores``. A score of exactly the maximum lies in the last bin, a negative one in the first. Scores
    that are not finite are left out. ``variant="quanproto"`` drops bins with ``p < 0.001`` without renormalising and
    clamps the entropy to [0, 1].

    Args:
        scores: ``(N, U)`` float, one row for every image of the test set.
        bins: number of bins, at least 1.
        variant: reading of the formula.

    Returns:
        ``(U,)`` float64 in bits, in [0, log2 bins], lower is better; NaN where no score is positive.

    Raises:
        ValueError: if a shape or dtype differs from the above, ``bins`` is below 1 or ``variant`` is unknown.

    Example:
        >>> prototype_entropy(torch.tensor([[2.0], [2.0], [1.0], [0.1]]))  # shares ½, ¼, ¼
        tensor([1.5000], dtype=torch.float64)
    """
    check_variant(variant)
    check_tensor("scores", scores, ("N", "U"), "float")
    check_at_least("bins", bins, 1)
    if scores.shape[0] == 0:
        return scores.new_full((scores.shape[1],), torch.nan, dtype=torch.float64)
    best = scores.double().masked_fill(~scores.isfinite(), -torch.inf).amax(dim=0)
    counts = _histogram(scores, best.masked_fill(best <= 0, 1), bins).double()
    shares = counts / counts.sum(dim=1, keepdim=True)
    terms = (shares * shares.reciprocal().log2()).masked_fill(counts == 0, 0)
    entropy = terms.sum(dim=1)
    if variant == "quanproto":
        entropy = terms.masked_fill(shares < _NEGLIGIBLE_SHARE, 0).sum(dim=1).clamp(0, 1)
    return entropy.masked_fill(best <= 0, torch.nan)
