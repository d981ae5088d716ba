"""To what extent the features of the predicted class look at different places (SID@k)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from protometry.metrics.base import ImageMean
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_at_least, check_labels, check_tensor
from protometry.metrics.primitives.chunks import image_chunks
from protometry.metrics.primitives.ranking import gather_units

_SMALLEST_SCALE = 1e-5  # of a map


def scale_invariant_diversity(maps: Tensor, weight: Tensor, predictions: Tensor, k: int = 5) -> Tensor:
    """To what extent the features of the predicted class look at different places (SID@k).

    Source: Norrenbrock et al. (2025), as released: ``1/k Σ_cells max_u P_u`` over the k features u with the largest
    signed weights of the predicted class; P_u is the softmax over cells of the map divided by its mean magnitude, which
    is at least 1e-5. Deviation: only non-zero weights are considered (ties: lower index). The released code prefers a
    weight of 0 to a negative one, and so may look at features that the class does not have.

    Args:
        maps: ``(B, U, h, w)`` float.
        weight: ``(K, U)`` float head weights without bias.
        predictions: ``(B,)`` int64 in ``[0, K)``.
        k: number of features, at least 1.

    Returns:
        ``(B,)`` float64 in [1/k, 1], higher is better; NaN where the predicted class has fewer than k non-zero weights
        or a map is not finite.

    Example:
        >>> maps = torch.tensor([[[[2.0, 0.0]], [[0.0, 2.0]]]])
        >>> scale_invariant_diversity(maps, torch.ones(1, 2), torch.tensor([0]), k=2)
        tensor([0.8808], dtype=torch.float64)
    """
    check_tensor("maps", maps, ("B", "U", "h", "w"), "float")
    check_tensor("weight", weight, ("K", maps.shape[1]), "float")
    check_labels(predictions, len(maps), len(weight), "predictions")
    check_at_least("k", k, 1)
    largest, units = weight.masked_fill(weight == 0, -torch.inf).sort(dim=1, descending=True, stable=True)
    units = units[:, :k].masked_fill(largest[:, :k].isinf(), -1)
    units = F.pad(units, (0, k - units.shape[1]), value=-1)[predictions]
    return torch.cat([_diversity(*chunk) for chunk in image_chunks(gather_units(maps, units))])


def _diversity(maps: Tensor) -> Tensor:
    """``(B, k, h, w)`` maps to ``(B,)``; NaN where one is not finite."""
    cells = maps.double().flatten(2)
    scale = cells.abs().mean(dim=2, keepdim=True).clamp(min=_SMALLEST_SCALE)
    values = (cells / scale).softmax(dim=2).amax(dim=1).sum(dim=1) / maps.shape[1]
    return values.clamp(1 / maps.shape[1], 1)  # rounding aside, it is within


class ScaleInvariantDiversity(ImageMean):
    """Mean over images of the extent to which features of the predicted class look at different places (SID@k)."""

    unit = "fraction"
    value_range = (0.2, 1.0)
    higher_is_better = True
    weight: Tensor

    def __init__(self, weight: Tensor, k: int = 5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_tensor("weight", weight, ("K", "U"), "float")
        check_at_least("k", k, 1)
        self.k = k
        self.value_range = (1 / k, 1.0)
        self.register_buffer("weight", weight, persistent=False)

    def update(self, unit_maps: Tensor, logits: Tensor) -> None:
        check_tensor("logits", logits, ("B", len(self.weight)), "float")
        values = scale_invariant_diversity(unit_maps, self.weight, logits.argmax(dim=1), self.k)
        self._accumulate(values, logits.isfinite().all(dim=1))


SCALE_INVARIANT_DIVERSITY = MetricEntry(
    "class_representation/sid@5",
    ScaleInvariantDiversity,
    Words(
        question="Do the units of a decision look at different places?",
        name="Scale-invariant diversity",
        formula="mean of 1/5 Σ over cells of max_u softmax(map_u / mean abs(map_u)), u the 5 largest weights ≠ 0 of "
        "the predicted class",
        source="released code of [N25]",
        misread="The worst value is 1/5, not 0. Five noisy maps also look at different places, not at parts.",
    ),
    lambda facts: ScaleInvariantDiversity(facts.features),
    needs=("weight", "five_features"),
)
