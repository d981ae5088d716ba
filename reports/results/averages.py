"""Means over folds and seeds, with the spread between folds and that between the seeds of a fold."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Average:
    """A metric over runs.

    Args:
        mean: over folds of the means over their runs; None without a value.
        sd_folds: sample standard deviation of the means of folds; None for fewer than two folds.
        sd_seeds: that of the runs of a fold, pooled over folds; None if no fold has two runs.
        folds: number of folds with a value.
        runs: number of runs with a value.
    """

    mean: float | None
    sd_folds: float | None
    sd_seeds: float | None
    folds: int
    runs: int


def average(folds: Sequence[Sequence[float]]) -> Average:
    """The mean over folds of the means over seeds, and both spreads.

    With values x_fs, means m_f of n_f runs and F folds, the mean is m = Σ_f m_f / F, the spread between folds
    √(Σ_f (m_f − m)² / (F − 1)), which includes what seeds move the mean of a fold by, and the spread between seeds
    √(Σ_fs (x_fs − m_f)² / Σ_f (n_f − 1)).

    Args:
        folds: values of the runs of each fold, which are trained with different seeds; folds without any are left out.

    Example:
        >>> average([[1.0, 3.0], [6.0]])
        Average(mean=4.0, sd_folds=2.8284271247461903, sd_seeds=1.4142135623730951, folds=2, runs=3)
        >>> average([[0.5]])
        Average(mean=0.5, sd_folds=None, sd_seeds=None, folds=1, runs=1)
    """
    found = [values for values in folds if values]
    means = [statistics.mean(values) for values in found]  # exact, so that equal values have a spread of 0
    runs = sum(map(len, found))
    squares = sum(statistics.variance(values) * (len(values) - 1) for values in found if len(values) > 1)
    return Average(
        mean=statistics.mean(means) if means else None,
        sd_folds=statistics.stdev(means) if len(means) > 1 else None,
        sd_seeds=math.sqrt(squares / (runs - len(found))) if runs > len(found) else None,
        folds=len(found),
        runs=runs,
    )
