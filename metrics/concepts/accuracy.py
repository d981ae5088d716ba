"""How many concepts are predicted right."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from protometry.metrics.concepts.prediction import PREDICTED, ConceptPrediction, build
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_range

_BALANCED = 3 * 0.5  # standard deviations of q, times its root of n


class ConceptAccuracy(ConceptPrediction):
    """Mean over concepts of the share of images on which the concept is predicted right (higher is better).

    Source: Koh et al. (2020), concept accuracy: predicted as present from a probability of 1/2. ``majority`` is the
    mean over concepts of ``max(q, 1 - q)`` with q the share of the n images that have the concept. On other images, the
    baseline may be right on no more than 1/2 where q lies within 1.5/√n of it, three standard deviations.

    Example:
        >>> metric = ConceptAccuracy(torch.tensor([0]), num_concepts=1)
        >>> metric.update(torch.tensor([[0.9], [0.4], [0.3]]), torch.tensor([[True], [True], [True]]))
        >>> summary = metric.summary()
        >>> round(summary["value"], 4), summary["majority"]
        (0.3333, 1.0)
    """

    higher_is_better = True
    counts: Tensor

    def __init__(self, concepts: Tensor, num_concepts: int, active: Tensor | None = None, **kwargs: Any) -> None:
        super().__init__(concepts, num_concepts, active, **kwargs)
        # images, those predicted right, those with the concept
        self.add_state("counts", torch.zeros(3, num_concepts, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, concept_probabilities: Tensor, concept_labels: Tensor) -> None:
        predicted, present = self._by_concept(concept_probabilities, concept_labels, "concept_probabilities")
        check_range("concept_probabilities", predicted, 0, 1)
        counted = predicted.isfinite()
        right = ((predicted >= 0.5) == present) & counted
        self.counts = self.counts + torch.stack([counted, right, present & counted]).sum(dim=1)

    def values(self) -> Tensor:
        return self.counts[1].double() / self.counts[0]

    def _majority(self) -> tuple[Tensor, Tensor]:
        share = self.counts[2].double() / self.counts[0]
        majority = torch.maximum(share, 1 - share)
        balanced = majority - 0.5 <= _BALANCED / self.counts[0].double().sqrt()
        return majority, majority.masked_fill(balanced, 0.5)


ACCURACY = MetricEntry(
    "concepts/accuracy",
    ConceptAccuracy,
    Words(
        question="How many concepts are right?",
        name="Concept accuracy",
        formula="mean over concepts of the share of images with [p ≥ 1/2] = c",
        source="[K20] 4",
        misread="Never predicting a rare concept is right on most images. Read `lift_over_majority`.",
        finding="{value} of the predictions of concepts are right.",
    ),
    lambda facts: build(facts, ConceptAccuracy),
    needs=PREDICTED,
)
