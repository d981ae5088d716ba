"""Whether a concept is as frequent as its predicted probability says."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from protometry.metrics.concepts.prediction import PREDICTED, ConceptPrediction, build
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.calibration import calibration_bins, calibration_error


class ConceptCalibrationError(ConceptPrediction):
    """Mean over concepts of the expected calibration error of their probabilities (lower is better).

    ``majority`` is the mean over concepts of ``min(q, 1 - q)`` with q the share of images that have the concept: a
    certain prediction is off by its error rate. As the error has no interval, there is no lift over it.

    Example:
        >>> metric = ConceptCalibrationError(torch.tensor([0]), num_concepts=1)
        >>> metric.update(torch.tensor([[0.75], [0.75]]), torch.tensor([[True], [False]]))
        >>> metric.compute()
        tensor(0.2500, dtype=torch.float64)
    """

    higher_is_better = False
    table: Tensor

    def __init__(
        self, concepts: Tensor, num_concepts: int, active: Tensor | None = None, bins: int = 15, **kwargs: Any
    ) -> None:
        super().__init__(concepts, num_concepts, active, **kwargs)
        self.add_state("table", torch.zeros(3, num_concepts, bins, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, concept_probabilities: Tensor, concept_labels: Tensor) -> None:
        predicted, present = self._by_concept(concept_probabilities, concept_labels, "concept_probabilities")
        self.table = self.table + calibration_bins(predicted, present, self.table.shape[2])

    def values(self) -> Tensor:
        return calibration_error(self.table)

    def _interval_of(self, values: Tensor, undefined: Tensor) -> tuple[Tensor, Tensor]:
        """None: chance raises the error of every concept, also of a calibrated one, and no spread of them shows it."""
        nothing = values.new_full((), torch.nan)
        return nothing, nothing

    def _additions(self) -> dict[str, Any]:
        images, _, present = self.table.sum(dim=2)
        shares = torch.minimum(present, images - present) / images
        return {"majority": float(shares.masked_fill(~self.values().isfinite(), torch.nan).nanmean())}


CALIBRATION_ERROR = MetricEntry(
    "concepts/ece",
    ConceptCalibrationError,
    Words(
        question="Is a concept as frequent as its probability says?",
        name="Expected calibration error",
        formula="mean over concepts of Σ_b n_b / n · abs(mean c − mean p) over 15 equal bins b of p",
        source="Naeini et al. 2015",
        misread="A constant p at the prevalence has 0. Few images in many bins raise it by chance: it has no interval.",
    ),
    lambda facts: build(facts, ConceptCalibrationError),
    needs=PREDICTED,
    whole_split=True,
)
