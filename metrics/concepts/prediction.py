"""The base of metrics of predicted concepts: a value for each concept of the data, and the majority baseline's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from protometry.metrics.base import ItemMean
from protometry.metrics.facts import Facts
from protometry.metrics.kept_scores import KeptScores
from protometry.metrics.primitives.checks import check_at_least, check_range, check_tensor
from protometry.metrics.primitives.intervals import lift_over, lifts_interval
from protometry.metrics.primitives.truth import check_truth

CONCEPTS = ("concepts", "single_label", "concepts_class|concepts_image")
PREDICTED = ("corrections", *CONCEPTS)


class ConceptPrediction(ItemMean):
    """Base of the metrics with one value per concept of the data set.

    What is unknown of an image (NaN in ``concept_labels``) is left out and counted. ``summary`` adds ``majority``: the
    value of a constant, certain prediction of what most evaluated images show (present, if half of them do), averaged
    over the same concepts, and ``lift_over_majority``, the mean over concepts of the difference, with its 95 %
    interval. Chance lets either answer to a balanced concept prevail, so that the upper bound is of the difference from
    the least that the baseline may reach on other images.

    Args:
        concepts: ``(U,)`` int64, the concept each unit stands for, -1 for none; a concept is read from the first active
            unit that stands for it, and undefined without one.
    """

    unit = "fraction"
    averaged_over = "concept"
    undefined = "no image says whether it has a concept that is predicted"
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

    def _by_concept(self, predictions: Tensor, concept_labels: Tensor, name: str) -> tuple[Tensor, Tensor]:
        """Predictions ``(B, L)`` of predictions ``(B, U)``, and labels ``(B, L)`` bool.

        A prediction is NaN for a concept without a unit, and where the label is unknown.
        """
        check_tensor(name, predictions, ("B", self.num_units), "float")
        check_truth("concept_labels", concept_labels, (len(predictions), len(self.units)))
        predicted = predictions.detach().index_select(1, self.units)
        broken = ~predicted.isfinite() | concept_labels.isnan()
        self.dropped = self.dropped + (broken & self.named).sum()
        return predicted.masked_fill(~self.named | concept_labels.isnan(), torch.nan), concept_labels == 1

    def _majority(self) -> tuple[Tensor, Tensor]:
        """``(L,)`` float64 each, the value of the majority baseline, and the least that it may be on other images."""
        raise NotImplementedError

    def _additions(self) -> dict[str, Any]:
        values, (majority, least) = self.values(), self._majority()
        lifts, most = values - majority, values - least
        bounds = lifts_interval(lifts)[0], lifts_interval(most)[1]
        return lift_over("majority", (values - lifts).nanmean(), lifts.nanmean(), bounds)


class ConceptScores(ConceptPrediction, KeptScores):
    """Base of those that need the scores of all images at once.

    Scores and labels are kept as float32, -1 for an unknown label, 8 bytes per image and concept, on every process once
    it synchronises.

    Args:
        columns: of further values that are kept of an image.
    """

    def __init__(
        self, concepts: Tensor, num_concepts: int, active: Tensor | None = None, columns: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(concepts, num_concepts, active, columns=2 * num_concepts + columns, **kwargs)

    def _keep(self, scores: Tensor, concept_labels: Tensor, *more: Tensor) -> None:
        """Add images, with ``(B, 1)`` of each further value."""
        self._by_concept(scores, concept_labels, "scores")  # checks and counts
        kept = scores.detach().index_select(1, self.units).float()
        kept = kept.masked_fill(~kept.isfinite() | ~self.named, -torch.inf)
        labels = concept_labels.float().nan_to_num(nan=-1.0)
        self._append(torch.cat([kept, labels, *(values.float() for values in more)], dim=1))

    def _kept(self) -> tuple[Tensor, Tensor, Tensor]:
        """Scores ``(n, M)``, labels ``(n, M)``, NaN if unknown, and further values of the M concepts with a unit.

        Of the images on which all scores are finite.
        """
        scores, present, more = self.scores.tensor_split([len(self.units), 2 * len(self.units)], dim=1)
        scores, present = scores[:, self.named], present[:, self.named]
        kept = scores.isfinite().all(dim=1)
        return scores[kept], present[kept].masked_fill(present[kept] < 0, torch.nan), more[kept]

    def _of_all(self, values: Tensor) -> Tensor:
        """``(L,)`` of the values ``(M,)`` of concepts with a unit; NaN for the others."""
        every = values.new_full((len(self.units),), torch.nan)
        every[self.named] = values
        return every


def build(facts: Facts, kind: Callable[..., ConceptPrediction], **options: Any) -> ConceptPrediction:
    """One of them, for the units of a model."""
    return kind(facts.units.concepts, len(facts.tables.concept_to_group), facts.active, **options)
