"""How little of a unit's activation comes from a single class."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from protometry.metrics.base import ItemMean
from protometry.metrics.class_representation.contrastiveness import measured_units
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_at_least, check_labels, check_tensor


def _sums_by_class(scores: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sums ``(K, U)`` and numbers ``(K,)`` of scores by class, their minimum and maximum ``(U,)``."""
    check_tensor("scores", scores, ("B", "U"), "float")
    check_labels(labels, len(scores), num_classes)
    values = scores.detach().double()
    sums = values.new_zeros(num_classes, values.shape[1]).index_add(0, labels, values)
    counts = labels.new_zeros(num_classes).index_add(0, labels, torch.ones_like(labels))
    edge = values.new_full((1, values.shape[1]), torch.inf)  # of no image
    return sums, counts, torch.cat([values, edge]).amin(dim=0), torch.cat([values, -edge]).amax(dim=0)


def _independence_of_sums(sums: Tensor, counts: Tensor, minimum: Tensor, maximum: Tensor) -> Tensor:
    shifted = sums - counts[:, None] * minimum
    total = shifted.sum(dim=0)
    values = (1 - shifted.amax(dim=0) / total).clamp(0, 1 - 1 / len(sums))  # rounding aside, it is within
    return values.masked_fill((minimum >= maximum) | ~total.isfinite(), torch.nan)


def class_independence(scores: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """How little of a unit's activation comes from a single class (generality).

    Source: Norrenbrock et al. (2025), as released: ``1 − max_c Σ_{y = c} f̃ / Σ f̃`` with f̃ the scores of a unit minus
    their minimum over all images.

    Args:
        scores: ``(N, U)`` float, one row for every training image.
        labels: ``(N,)`` int64 in ``[0, K)``.
        num_classes: K.

    Returns:
        ``(U,)`` float64 in [0, 1 − 1/K], higher is better; NaN where all scores are equal or one is not finite.

    Example:
        >>> class_independence(torch.tensor([[1.0], [3.0], [2.0], [1.0]]), torch.tensor([0, 0, 1, 1]), 2)
        tensor([0.3333], dtype=torch.float64)
    """
    return _independence_of_sums(*_sums_by_class(scores, labels, num_classes))


class ClassIndependence(ItemMean):
    """Mean over units of how little of their activation comes from a single class (generality, higher is better).

    Of the scores on the **training** images without augmentation.
    """

    unit = "fraction"
    averaged_over = "unit"
    undefined = "the scores of every unit are the same on all images"
    higher_is_better = True
    active: Tensor
    sums: Tensor
    counts: Tensor
    minimum: Tensor
    maximum: Tensor

    def __init__(self, num_units: int, num_classes: int, active: Tensor | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_at_least("num_classes", num_classes, 1)
        self.value_range = (0.0, 1 - 1 / num_classes)
        self.num_units = num_units
        self.num_classes = num_classes
        self.register_buffer("active", measured_units(num_units, active), persistent=False)
        self.add_state("sums", torch.zeros(num_classes, num_units, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("counts", torch.zeros(num_classes, dtype=torch.int64), dist_reduce_fx="sum")
        edge = torch.full((num_units,), torch.inf, dtype=torch.float64)
        self.add_state("minimum", edge, dist_reduce_fx="min")
        self.add_state("maximum", -edge, dist_reduce_fx="max")

    def update(self, scores: Tensor, labels: Tensor) -> None:
        check_tensor("scores", scores, ("B", self.num_units), "float")
        sums, counts, minimum, maximum = _sums_by_class(scores, labels, self.num_classes)
        self.sums = self.sums + sums
        self.counts = self.counts + counts
        self.minimum = self.minimum.minimum(minimum)
        self.maximum = self.maximum.maximum(maximum)

    def values(self) -> Tensor:
        values = _independence_of_sums(self.sums, self.counts, self.minimum, self.maximum)
        return values.masked_fill(~self.active, torch.nan)


CLASS_INDEPENDENCE = MetricEntry(
    "class_representation/class_independence",
    ClassIndependence,
    Words(
        question="Is a unit shared by many classes?",
        name="Class independence",
        formula="mean over units of 1 − the largest share of a class in their activation on the training images",
        source="released code of [N25]",
        misread="Noise is the most independent; the maximum, 1 − 1/K, falls with fewer classes. A class detector: 0.",
    ),
    lambda facts: ClassIndependence(len(facts.active), facts.num_classes, (facts.features != 0).any(dim=0)),
    needs=("weight", "features", "training", "single_label"),
    view="training",
)
