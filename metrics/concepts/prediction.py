"""How well the units of a model predict the concepts that they stand for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metrics.base import AveragedOver, ItemMean
from metrics.concepts.auc import concept_auc
from metrics.entry import MetricEntry, Words
from metrics.facts import Facts
from metrics.kept_scores import KeptScores
from metrics.primitives.checks import check_at_least, check_tensor


def calibration_bins(probabilities: Tensor, present: Tensor, bins: int = 15) -> Tensor:
    """Counts and sums in equal bins of the predicted probability, from which calibration follows.

    Args:
        probabilities: ``(B, L)`` float in [0, 1]; what is not finite is left out.
        present: ``(B, L)`` bool.
        bins: on [0, 1], at least 1; each holds its lower end, the last one 1 too.

    Returns:
        ``(3, L, bins)`` float64: number of images, sum of their probabilities, number of those that have the concept.

    Raises:
        ValueError: if an argument differs from the above.

    Example:
        >>> probabilities, present = torch.tensor([[0.25], [0.75], [1.0]]), torch.tensor([[True], [False], [True]])
        >>> calibration_bins(probabilities, present, bins=2)[:, 0]
        tensor([[1.0000, 2.0000],
                [0.2500, 1.7500],
                [1.0000, 1.0000]], dtype=torch.float64)
    """
    check_tensor("probabilities", probabilities, ("B", "L"), "float")
    check_tensor("present", present, tuple(probabilities.shape), "bool")
    check_at_least("bins", bins, 1)
    finite = probabilities.isfinite()
    values = probabilities.detach().double().masked_fill(~finite, 0)
    places = (values * bins).long().clamp(0, bins - 1).T
    told = torch.stack([finite.double(), values, (present & finite).double()]).transpose(1, 2)
    empty = values.new_zeros(3, values.shape[1], bins)
    return empty.scatter_add(2, places.expand(3, -1, -1), told)


def calibration_error(table: Tensor) -> Tensor:
    """Expected calibration error of every concept.

    Source: Naeini et al. (2015): ``Σ_b (n_b / n) |mean label_b - mean probability_b|`` over the bins b of the
    probability that the concept is present.

    Args:
        table: ``(3, L, bins)`` float64, see :func:`calibration_bins`.

    Returns:
        ``(L,)`` float64 in [0, 1], lower is better; NaN for a concept without an image.

    Raises:
        ValueError: if the shape or dtype differs from the above.

    Example:
        >>> table = calibration_bins(torch.tensor([[0.25], [0.75]]), torch.tensor([[False], [True]]))
        >>> calibration_error(table)
        tensor([0.2500], dtype=torch.float64)
    """
    check_tensor("table", table, (3, "L", "bins"), "float")
    count, probability, present = table
    error: Tensor = (present - probability).abs().sum(dim=1) / count.sum(dim=1)
    return error


class ConceptPrediction(ItemMean):
    """Base of the metrics with one value per concept of the data set.

    ``summary`` adds ``majority``: what a prediction reaches that is certain, for every image, of what most evaluated
    images are (present, if half of them), averaged over the same concepts.

    Args:
        concepts: ``(U,)`` int64, the concept each unit stands for, -1 for none; a concept is read from the first active
            unit that stands for it, and undefined without one.
        num_concepts: L.
        active: ``(U,)`` bool; None for all.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: if an argument differs from the above.
    """

    unit = "fraction"
    value_range = (0.0, 1.0)
    averaged_over: AveragedOver = "concept"
    units: Tensor
    named: Tensor

    def __init__(self, concepts: Tensor, num_concepts: int, active: Tensor | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_tensor("concepts", concepts, ("U",), "int64")
        check_at_least("num_concepts", num_concepts, 1)
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

    def summary(self) -> dict[str, float]:
        """The value with its interval, and ``majority``."""
        summary = super().summary()
        with self.sync_context(dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync):
            baseline = self._majority().masked_fill(~self.values().isfinite(), torch.nan)
        return {**summary, "majority": float(baseline.nanmean())}


class ConceptAccuracy(ConceptPrediction):
    """Mean over concepts of the share of images on which the concept is predicted right (higher is better).

    Source: Koh et al. (2020), concept accuracy: predicted as present from a probability of 1/2. Rare concepts make it
    high for a model that predicts none; see ``majority``, the mean over concepts of ``max(q, 1 - q)`` with q the share
    of images that have the concept.

    Args:
        concepts: see :class:`ConceptPrediction`, as the further arguments.
        num_concepts: L.
        active: ``(U,)`` bool; None for all.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        concept_probabilities: ``(B, U)`` float; what is not finite is left out and counted.
        concept_labels: ``(B, L)`` bool.

    Raises:
        ValueError: if an argument differs from the above.

    Example:
        >>> metric = ConceptAccuracy(torch.tensor([0]), num_concepts=1)
        >>> metric.update(torch.tensor([[0.9], [0.4], [0.3]]), torch.tensor([[True], [True], [True]]))
        >>> summary = metric.summary()
        >>> round(summary["value"], 4), summary["majority"]
        (0.3333, 1.0)
    """

    name = "accuracy"
    reads = ("concept_probabilities", "concept_labels")
    higher_is_better = True
    counts: Tensor

    def __init__(self, concepts: Tensor, num_concepts: int, active: Tensor | None = None, **kwargs: Any) -> None:
        super().__init__(concepts, num_concepts, active, **kwargs)
        # images, those predicted right, those with the concept
        self.add_state("counts", torch.zeros(3, num_concepts, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, concept_probabilities: Tensor, concept_labels: Tensor) -> None:
        """Add a batch."""
        predicted = self._by_concept(concept_probabilities, concept_labels, "concept_probabilities")
        finite = predicted.isfinite()
        right = ((predicted >= 0.5) == concept_labels) & finite
        self.counts = self.counts + torch.stack([finite, right, concept_labels & finite]).sum(dim=1)

    def values(self) -> Tensor:
        """``(L,)`` float64, NaN where undefined."""
        return self.counts[1].double() / self.counts[0]

    def _majority(self) -> Tensor:
        share = self.counts[2].double() / self.counts[0]
        return torch.maximum(share, 1 - share)


class ConceptAUC(ConceptPrediction, KeptScores):
    """Mean over concepts of the area under the ROC curve of their scores (higher is better).

    Source: Mann and Whitney (1947), see :func:`metrics.functional.concept_auc`. Undefined for a concept that all images
    have, or none. An image with a score that is not finite is left out and counted. ``majority``, as every prediction
    that is the same for all images, reaches 1/2.

    The scores and labels of all images are kept, as float32, because an area is known only from all of them: 8·N·L
    bytes on every process once it synchronises, 5.2 MB for 5 794 images and 112 concepts.

    Args:
        concepts: see :class:`ConceptPrediction`, as the further arguments.
        num_concepts: L.
        active: ``(U,)`` bool; None for all.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        scores: ``(B, U)`` float.
        concept_labels: ``(B, L)`` bool.

    Raises:
        ValueError: if an argument differs from the above.

    Example:
        >>> metric = ConceptAUC(torch.tensor([0]), num_concepts=1)
        >>> metric.update(torch.tensor([[3.0], [1.0], [2.0]]), torch.tensor([[True], [True], [False]]))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    name = "auc"
    reads = ("scores", "concept_labels")
    higher_is_better = True

    def __init__(self, concepts: Tensor, num_concepts: int, active: Tensor | None = None, **kwargs: Any) -> None:
        super().__init__(concepts, num_concepts, active, columns=2 * num_concepts, **kwargs)

    def update(self, scores: Tensor, concept_labels: Tensor) -> None:
        """Add a batch."""
        predicted = self._by_concept(scores, concept_labels, "scores").float()
        predicted = predicted.masked_fill(~predicted.isfinite(), -torch.inf)
        self._append(torch.cat([predicted, concept_labels.float()], dim=1))

    def values(self) -> Tensor:
        """``(L,)`` float64, NaN where undefined."""
        scores, present = self.scores.chunk(2, dim=1)
        kept = (scores.isfinite() | ~self.named).all(dim=1)
        areas: Tensor = concept_auc(scores[kept], present[kept] > 0).diagonal()
        return areas.masked_fill(~self.named, torch.nan)

    def _majority(self) -> Tensor:
        return torch.full((len(self.units),), 0.5, dtype=torch.float64, device=self.units.device)


class ConceptCalibrationError(ConceptPrediction):
    """Mean over concepts of the expected calibration error of their probabilities (lower is better).

    Source: Naeini et al. (2015), see :func:`metrics.functional.calibration_error`, with ``bins`` equal bins of the
    probability that a concept is present. ``majority`` is the mean over concepts of ``min(q, 1 - q)`` with q the share
    of images that have the concept: a certain prediction is off by its error rate. A constant q would be off by 0.

    Args:
        concepts: see :class:`ConceptPrediction`, as the further arguments.
        num_concepts: L.
        active: ``(U,)`` bool; None for all.
        bins: at least 1.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        concept_probabilities: ``(B, U)`` float in [0, 1]; what is not finite is left out and counted.
        concept_labels: ``(B, L)`` bool.

    Raises:
        ValueError: if an argument differs from the above.

    Example:
        >>> metric = ConceptCalibrationError(torch.tensor([0]), num_concepts=1)
        >>> metric.update(torch.tensor([[0.75], [0.75]]), torch.tensor([[True], [False]]))
        >>> metric.compute()
        tensor(0.2500, dtype=torch.float64)
    """

    name = "ece"
    reads = ("concept_probabilities", "concept_labels")
    higher_is_better = False
    table: Tensor

    def __init__(
        self, concepts: Tensor, num_concepts: int, active: Tensor | None = None, bins: int = 15, **kwargs: Any
    ) -> None:
        super().__init__(concepts, num_concepts, active, **kwargs)
        check_at_least("bins", bins, 1)
        self.add_state("table", torch.zeros(3, num_concepts, bins, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, concept_probabilities: Tensor, concept_labels: Tensor) -> None:
        """Add a batch."""
        predicted = self._by_concept(concept_probabilities, concept_labels, "concept_probabilities")
        self.table = self.table + calibration_bins(predicted, concept_labels, self.table.shape[2])

    def values(self) -> Tensor:
        """``(L,)`` float64, NaN where undefined."""
        return calibration_error(self.table)

    def _majority(self) -> Tensor:
        images, _, present = self.table.sum(dim=2)
        shares: Tensor = torch.minimum(present, images - present) / images
        return shares


CONCEPTS = ("concepts", "single_label", "concepts_class|concepts_image")
PREDICTED = ("corrections", *CONCEPTS)


def _build(facts: Facts, kind: type[ConceptPrediction]) -> ConceptPrediction:
    assert facts.concepts is not None
    assert facts.concept_to_group is not None
    return kind(facts.concepts, len(facts.concept_to_group), facts.active)


ACCURACY = MetricEntry(
    "concepts/accuracy",
    ConceptAccuracy,
    Words(
        question="How many concepts are right?",
        name="Concept accuracy",
        formula="mean over concepts of the share of images with [p ≥ 1/2] = c",
        source="[K20] 4",
        misread="Rare concepts: to predict none is right on most images. Read it beside `majority`.",
    ),
    lambda facts: _build(facts, ConceptAccuracy),
    needs=PREDICTED,
)
AUC = MetricEntry(
    "concepts/auc",
    ConceptAUC,
    Words(
        question="How well do scores separate images with a concept from those without?",
        name="Area under the ROC curve",
        formula="mean over concepts of the probability that an image with the concept scores higher than one without; "
        "ties count 1/2",
        source="Mann and Whitney 1947",
        misread="It sees the order alone: probabilities may be far off. Labels of whole classes make it a test of "
        "classes.",
    ),
    lambda facts: _build(facts, ConceptAUC),
    needs=CONCEPTS,
)
CALIBRATION_ERROR = MetricEntry(
    "concepts/ece",
    ConceptCalibrationError,
    Words(
        question="Is a concept as frequent as its probability says?",
        name="Expected calibration error",
        formula="mean over concepts of Σ_b n_b / n · abs(mean c − mean p) over 15 equal bins b of p",
        source="Naeini et al. 2015",
        misread="A constant p at the prevalence has 0. Few images in many bins raise it by chance.",
    ),
    lambda facts: _build(facts, ConceptCalibrationError),
    needs=PREDICTED,
)
