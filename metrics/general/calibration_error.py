"""Whether the predicted class is right as often as its probability says."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from protometry.metrics.base import AveragedOver, SummaryMetric
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.general.accuracy import check_single_label
from protometry.metrics.primitives.calibration import calibration_bins, calibration_error
from protometry.metrics.primitives.checks import check_at_least
from protometry.metrics.primitives.regions import all_finite


def confidence_bins(probabilities: Tensor, labels: Tensor, abstained: Tensor | None = None, bins: int = 15) -> Tensor:
    """Counts and sums in equal bins of the largest probability, as :func:`calibration_bins` makes them.

    Ties go to the lowest class.

    Args:
        probabilities: ``(B, K)`` float in [0, 1]; images with a value that is not finite are left out.
        labels: ``(B,)`` int64 in ``[0, K)``.
        abstained: ``(B,)`` bool, the model decided nothing and claims no probability, which is left out; by default it
            always decides.
        bins: on [0, 1], at least 1; each holds its lower end, the last one 1 too.

    Returns:
        ``(3, bins)`` float64: number of images, sum of their largest probabilities, number of images whose class is
        right.
    """
    check_single_label(probabilities, labels, abstained, "probabilities")
    confidence, predicted = probabilities.max(dim=1)
    undefined = ~all_finite(probabilities, dim=1)
    undefined = undefined if abstained is None else undefined | abstained
    confidence = confidence.masked_fill(undefined, torch.nan)
    return calibration_bins(confidence[:, None], (predicted == labels)[:, None], bins)[:, 0]


class CalibrationError(SummaryMetric):
    """Expected calibration error of the predicted class (lower is better).

    Source: Guo et al. (2017), *On Calibration of Modern Neural Networks*, equation 3, with 15 bins as in their
    experiments; their bins hold the upper end, ours the lower one. An image on which the model abstains has no
    predicted class: left out and counted. There is no interval, since chance raises the error of a calibrated model,
    too.

    Example:
        >>> metric = CalibrationError()
        >>> metric.update(torch.tensor([[0.75, 0.25], [0.75, 0.25]]), torch.tensor([0, 1]))
        >>> metric.compute()  # right on half of the images
        tensor(0.2500, dtype=torch.float64)
    """

    unit = "fraction"
    averaged_over: AveragedOver = "image"
    higher_is_better = False
    table: Tensor
    skipped: Tensor

    def __init__(self, bins: int = 15, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_at_least("bins", bins, 1)
        self.add_state("table", torch.zeros(3, bins, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("skipped", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, probabilities: Tensor, labels: Tensor, abstained: Tensor | None = None) -> None:
        added = confidence_bins(probabilities, labels, abstained, self.table.shape[1])
        self.table = self.table + added
        self.skipped = self.skipped + (len(labels) - added[0].sum().long())

    def _estimate(self) -> tuple[Tensor, Tensor, Tensor]:
        return calibration_error(self.table[:, None]).squeeze(0), self.table[0].sum().long(), self.skipped

    def _interval(self) -> tuple[Tensor, Tensor]:
        nothing = self.table.new_full((), torch.nan)
        return nothing, nothing


CALIBRATION_ERROR = MetricEntry(
    "general/calibration_error",
    CalibrationError,
    Words(
        question="Is the predicted class right as often as its probability says?",
        name="Expected calibration error",
        formula="Σ_b n_b / n · abs(accuracy_b − mean p_b) over 15 equal bins b of the largest probability p",
        source="Guo et al. 2017, 3",
        misread="A model that gives every image the same p, its accuracy, has 0. Few images in many bins raise it by "
        "chance: it has no interval. Images on which the model abstains are left out.",
    ),
    needs=("single_label",),
)
