"""Entropy of the scores of units over the test set."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.kept_scores import KeptScores
from protometry.metrics.primitives.checks import check_at_least, check_ids, check_tensor
from protometry.metrics.primitives.chunks import image_chunks
from protometry.metrics.primitives.regions import is_flat
from protometry.metrics.primitives.variants import Variant, check_variant

_NEGLIGIBLE = 1e-3  # bins below it are dropped by the published tables


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
        index = cells.long().add_(starts).flatten()
        counts.scatter_add_(0, index, ones[: len(index)])  # unlike `bincount`, it does not wait for a device
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
    """
    check_variant(variant)
    check_tensor("scores", scores, ("N", "U"), "float")
    check_at_least("bins", bins, 1)
    if scores.shape[0] == 0:
        return scores.new_full((scores.shape[1],), torch.nan, dtype=torch.float64)
    best, counts = _maximum_and_counts(scores, bins)
    probabilities = counts / counts.sum(dim=1, keepdim=True)
    terms = (probabilities * probabilities.reciprocal().log2()).masked_fill(counts == 0, 0)
    entropy = terms.sum(dim=1)
    if variant == "quanproto":
        entropy = terms.masked_fill(probabilities < _NEGLIGIBLE, 0).sum(dim=1).clamp(0, 1)
    return entropy.masked_fill(best <= 0, torch.nan)


class PrototypeEntropy(KeptScores):
    """Mean over active units of the entropy of their scores (lower is better).

    All units of several images are undefined if the scores of none differ, up to rounding: 0 would be the best value.
    With ``variant="quanproto"`` only units that were in some ``unit_ids`` are averaged.

    The scores of all images are kept, as float32, because the maximum that scales a unit is known only at the end:
    N·U·4 bytes on every process once it synchronises, 46 MB for 5 794 images and 2 000 units, and up to twice as much
    while images are added.

    Example:
        >>> metric = PrototypeEntropy(num_units=1)
        >>> metric.update(torch.tensor([[2.0], [2.0]]))
        >>> metric.update(torch.tensor([[1.0], [0.1]]))
        >>> metric.compute()  # shares 1/2, 1/4 and 1/4
        tensor(1.5000, dtype=torch.float64)
    """

    unit = "bits"
    value_range = (0.0, math.log2(10))
    averaged_over = "unit"
    undefined = "the scores of every unit are the same on all images, or nowhere positive"
    higher_is_better = False
    active: Tensor
    shown: Tensor

    def __init__(
        self,
        num_units: int,
        bins: int = 10,
        active: Tensor | None = None,
        variant: Variant = "paper",
        **kwargs: Any,
    ) -> None:
        check_at_least("num_units", num_units, 1)
        super().__init__(num_units, **kwargs)
        check_variant(variant)
        check_at_least("bins", bins, 1)
        if active is None:
            active = torch.ones(num_units, dtype=torch.bool)
        check_tensor("active", active, (num_units,), "bool")
        self.num_units = num_units
        self.bins = bins
        self.variant: Variant = variant
        self.value_range = (0.0, 1.0 if variant == "quanproto" else math.log2(bins))
        self.register_buffer("active", active.clone(), persistent=False)
        self.add_state("shown", torch.zeros(num_units, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, scores: Tensor, unit_ids: Tensor | None = None) -> None:
        check_tensor("scores", scores, ("B", self.num_units), "float")
        if unit_ids is not None:
            check_ids("unit_ids", unit_ids, (len(scores), "k"), self.num_units)
        nothing = -torch.inf
        kept = scores.detach().float().nan_to_num(nan=nothing, posinf=nothing, neginf=nothing)
        self._append(kept)
        self.dropped = self.dropped + ((kept == nothing) & self.active).count_nonzero()
        if unit_ids is not None:
            ids = unit_ids.flatten()
            self.shown = self.shown.scatter_add(0, ids.clamp(min=0), (ids >= 0).long())

    def values(self) -> Tensor:
        averaged = self.active
        if self.variant == "quanproto":
            averaged = averaged & ((self.shown > 0) | (self.shown == 0).all())
        alike = (~averaged | self._is_constant()).all() & (len(self.scores) > 1)
        return prototype_entropy(self.scores, self.bins, self.variant).masked_fill(~averaged | alike, torch.nan)

    def _is_constant(self) -> Tensor:
        """``(U,)`` bool, whether the finite scores of a unit are all equal."""
        edge = self.scores.new_full((1, self.num_units), -torch.inf)
        high = torch.cat([self.scores, edge]).amax(dim=0)
        low = torch.cat([self.scores.masked_fill(self.scores.isinf(), torch.inf), -edge]).amin(dim=0)
        return is_flat(low, high)


ENTROPY = MetricEntry(
    "contrastivity/entropy",
    PrototypeEntropy,
    Words(
        question="Does a unit say yes or no, or something in between?",
        name="Prototype entropy",
        formula="mean of −Σ p log₂ p over 10 bins of s / max s on all images",
        source="[S25] 15",
        misread="A unit that hardly ever fires has a low, good entropy, and so has any on few images. The published "
        "tables clamp it to 1.",
    ),
    lambda facts: PrototypeEntropy(len(facts.active), active=facts.active, variant=facts.variant),
)
