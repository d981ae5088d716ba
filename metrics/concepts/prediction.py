"""The base of metrics of predicted concepts: a value for each concept of the data, and the majority baseline's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from protometry.metrics.base import ItemMean
from protometry.metrics.facts import Facts
from protometry.metrics.primitives.checks import check_at_least, check_range, check_tensor

CONCEPTS = ("concepts", "single_label", "concepts_class|concepts_image")
PREDICTED = ("corrections", *CONCEPTS)


class ConceptPrediction(ItemMean):
    """Base of the metrics with one value per concept of the data set.

    ``summary`` adds ``majority``: the value of a constant, certain prediction of what most evaluated images show
    (present, if half of them do), averaged over the same concepts.

    Args:
        concepts: ``(U,)`` int64, the concept each unit stands for, -1 for none; a concept is read from the first active
            unit that stands for it, and undefined without one.
    """

    unit = "fraction"
    averaged_over = "concept"
    units: Tensor
    named: Tensor

    def __init__(self, concepts: Tensor, num_concepts: int, active: Tensor | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_tensor("concepts", concepts, ("U",), "int64")
        check_at_least("num_concepts", num_concepts, 1)
        check_range("concepts", concepts, -1, num_concepts - 1)
        active = torch.ones_like(concepts, dtype=torch.bool) if active is None else active
        check_tensor("active", active, tuple(concepts.shape), "bool")
        stands = (concepts == torch.arange(num_concepts, device=concepts.device)[:, None]) & active
        self.register_buffer("units", stands.int().argmax(dim=1), persistent=False)
        self.register_buffer("named", stands.any(dim=1), persistent=False)
        self.num_units = len(concepts)

    def _by_concept(self, predictions: Tensor, concept_labels: Tensor, name: str) -> Tensor:
        """Predictions ``(B, L)`` of predictions ``(B, U)``; NaN for a concept without a unit."""
        check_tensor(name, predictions, ("B", self.num_units), "float")
        check_tensor("concept_labels", concept_labels, (len(predictions), len(self.units)), "bool")
        broken = (~predictions.isfinite()).index_select(1, self.units) & self.named
        self.dropped = self.dropped + broken.sum()
        return predictions.detach().index_select(1, self.units).masked_fill(~self.named, torch.nan)

    def _majority(self) -> Tensor:
        """``(L,)`` float64, the value of the majority baseline."""
        raise NotImplementedError

    def _additions(self) -> dict[str, Any]:
        baseline = self._majority().masked_fill(~self.values().isfinite(), torch.nan)
        return {"majority": float(baseline.nanmean())}


def build(facts: Facts, kind: Callable[..., ConceptPrediction], **options: Any) -> ConceptPrediction:
    """One of them, for the units of a model."""
    return kind(facts.units.concepts, len(facts.tables.concept_to_group), facts.active, **options)
