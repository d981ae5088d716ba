"""Fits of a mixture of two normal distributions to one-dimensional values, many at once, without any randomness."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_VARIANCE_FLOOR = 1e-6  # added to every variance


def fit_two_normals(values: Tensor, max_iterations: int = 100, tolerance: float = 1e-3) -> tuple[Tensor, Tensor]:
    """Fit a mixture of two normal distributions to every row by expectation maximisation.

    The start is the exact two-means split of a row. Each row stops on its own, once its mean log-likelihood moves by
    less than ``tolerance``.

    Args:
        values: ``(U, N)`` float64, ascending, of mean 0 and variance 1; N >= 2.
        max_iterations: the most steps, at least 1.
        tolerance: change of the mean log-likelihood at which a row stops.

    Returns:
        Means and standard deviations, ``(2, U)`` float64 each.
    """
    upper = torch.arange(values.shape[1], device=values.device) >= _two_means(values)[:, None]
    mixture = _maximise(values, torch.stack([~upper, upper]).double())
    fitted, rows = mixture.clone(), torch.arange(len(values), device=values.device)
    last = values.new_full((len(values),), -torch.inf)
    for _ in range(max_iterations):
        likelihood, responsibilities = _expect(values, mixture)
        mixture = _maximise(values, responsibilities)
        fitted[..., rows] = mixture
        moving = (likelihood - last).abs() >= tolerance
        if not moving.any():
            break
        if not moving.all():
            values, rows, likelihood, mixture = values[moving], rows[moving], likelihood[moving], mixture[..., moving]
        last = likelihood
    return fitted[1], fitted[2].sqrt()


def _two_means(values: Tensor) -> Tensor:
    """``(U,)`` size of the lower of the two groups with the least squared distance to their means; ties: smallest."""
    count = values.shape[1]
    lower = values.cumsum(dim=1)[:, :-1]
    upper = values.sum(dim=1, keepdim=True) - lower
    sizes = torch.arange(1, count, device=values.device)
    return (lower.square() / sizes + upper.square() / (count - sizes)).argmax(dim=1) + 1


def _maximise(values: Tensor, responsibilities: Tensor) -> Tensor:
    """Weights, means and variances ``(3, 2, U)`` of the components from their responsibilities ``(2, U, N)``."""
    sizes = responsibilities.sum(dim=2).clamp(min=torch.finfo(responsibilities.dtype).tiny)
    means = (responsibilities * values).sum(dim=2) / sizes
    variances = (responsibilities * (values - means[..., None]).square()).sum(dim=2) / sizes + _VARIANCE_FLOOR
    return torch.stack([sizes / values.shape[1], means, variances])


def _expect(values: Tensor, mixture: Tensor) -> tuple[Tensor, Tensor]:
    """Mean log-likelihood ``(U,)``, and the responsibilities ``(2, U, N)`` of the components for every value."""
    weights, means, variances = mixture[..., None]
    exponent = (values - means).square() / variances + variances.log() + math.log(2 * math.pi)
    joint = weights.log() - exponent / 2
    total = joint.logsumexp(dim=0)
    return total.mean(dim=1), (joint - total).exp()
