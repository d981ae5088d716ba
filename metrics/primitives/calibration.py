"""How far predicted probabilities are from shares: of concepts, and of predicted classes."""

from __future__ import annotations

import torch
from torch import Tensor

from protometry.metrics.primitives.checks import check_at_least, check_range, check_tensor


def calibration_bins(probabilities: Tensor, present: Tensor, bins: int = 15) -> Tensor:
    """Counts and sums in equal bins of the predicted probability, which determine the calibration error.

    Args:
        probabilities: ``(B, L)`` float in [0, 1]; what is not finite is left out.
        present: ``(B, L)`` bool.
        bins: on [0, 1], at least 1; each holds its lower end, the last one 1 too.

    Returns:
        ``(3, L, bins)`` float64: number of images, sum of their probabilities, number of images that have it.
    """
    check_tensor("probabilities", probabilities, ("B", "L"), "float")
    check_tensor("present", present, tuple(probabilities.shape), "bool")
    check_range("probabilities", probabilities, 0, 1)
    check_at_least("bins", bins, 1)
    finite = probabilities.isfinite()
    values = probabilities.detach().double().masked_fill(~finite, 0)
    index = (values * bins).long().clamp(0, bins - 1).T
    stacked = torch.stack([finite.double(), values, (present & finite).double()]).transpose(1, 2)
    empty = values.new_zeros(3, values.shape[1], bins)
    return empty.scatter_add(2, index.expand(3, -1, -1), stacked)


def calibration_error(table: Tensor) -> Tensor:
    """Expected calibration error of every concept, or of whatever else has a probability.

    Source: Naeini et al. (2015): ``Σ_b (n_b / n) |mean label_b - mean probability_b|`` over the bins b of the
    probability that it is present.

    Args:
        table: ``(3, L, bins)`` float64, see :func:`calibration_bins`.

    Returns:
        ``(L,)`` float64 in [0, 1], lower is better; NaN for a concept without an image.
    """
    check_tensor("table", table, (3, "L", "bins"), "float")
    count, probability, present = table
    error: Tensor = (present - probability).abs().sum(dim=1) / count.sum(dim=1)
    return error
