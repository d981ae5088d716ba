"""Kernel: entropy of the scores of a unit over the images."""

from __future__ import annotations

import torch
from torch import Tensor

from metrics.functional.primitives.checks import check_at_least, check_tensor
from metrics.functional.primitives.chunks import image_chunks
from metrics.functional.primitives.variants import Variant, check_variant

_NEGLIGIBLE_SHARE = 1e-3  # bins below it are dropped by the published tables


def _maximum_and_counts(scores: Tensor, bins: int) -> tuple[Tensor, Tensor]:
    """Largest score ``(U,)`` and counts ``(U, bins)`` of the finite scores ``(N, U)``."""
    units = scores.shape[1]
    blocks = [block for (block,) in image_chunks(scores)]
    best = scores.new_full((units,), -torch.inf)
    for block in blocks:
        finite = block.nan_to_num(nan=-torch.inf, posinf=-torch.inf, neginf=-torch.inf)
        best = best.maximum(finite.amax(dim=0))
    best = best.double()
    scale = best.masked_fill(best <= 0, 1)
    counts = torch.zeros(units * (bins + 1), dtype=torch.int64, device=scores.device)  # the last bin: not finite
    starts = torch.arange(units, device=scores.device) * (bins + 1)
    ones = torch.ones(blocks[0].numel(), dtype=torch.int64, device=scores.device)
    for block in blocks:
        cells = (block / scale).mul_(bins).floor_().clamp_(0, bins - 1)
        cells.masked_fill_((block.abs() < torch.inf).logical_not_(), bins)
        places = cells.long().add_(starts).flatten()
        counts.scatter_add_(0, places, ones[: len(places)])  # unlike `bincount`, it does not wait for a device
    return best, counts.view(units, bins + 1)[:, :bins].double()


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
    best, counts = _maximum_and_counts(scores, bins)
    shares = counts / counts.sum(dim=1, keepdim=True)
    terms = (shares * shares.reciprocal().log2()).masked_fill(counts == 0, 0)
    entropy = terms.sum(dim=1)
    if variant == "quanproto":
        entropy = terms.masked_fill(shares < _NEGLIGIBLE_SHARE, 0).sum(dim=1).clamp(0, 1)
    return entropy.masked_fill(best <= 0, torch.nan)
