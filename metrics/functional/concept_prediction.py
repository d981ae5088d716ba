"""Kernels: calibration of predicted concepts."""

from __future__ import annotations

import torch
from torch import Tensor

from metrics.functional.primitives.checks import check_at_least, check_tensor


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
