"""Tests over people only, for comparison with HIVE: against a value, between two groups, and within the same people.

They ask whether other people would do as well on these very images; ``crossed`` asks it of other images too. They take
means, standard deviations and numbers of people, so that published values can be tested like one's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protometry.studies.statistics.crossed_effects import Estimate

MAX_EXACT = 19  # participants: all 2^19 flips of their signs are enumerated


@dataclass(frozen=True)
class Summary:
    """Mean of one value per participant.

    Attributes:
        sd: standard deviation over participants, with n - 1.

    Example:
        >>> Summary.of(np.array([0.5, 1.0, 0.75]))
        Summary(mean=0.75, sd=0.25, n=3)
    """

    mean: float
    sd: float
    n: int

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Summary:
        """Summarise ``(n,)`` values; the mean of none and the deviation of fewer than two are NaN."""
        n = len(values)
        return cls(float(values.mean()) if n else math.nan, float(values.std(ddof=1)) if n > 1 else math.nan, n)

    def interval(self) -> tuple[float, float]:
        """Student's 95 % interval of the mean, ``mean ± t s / √n``; NaN for fewer than two participants."""
        return Estimate(self.mean, self.sd / math.sqrt(max(self.n, 1)), self.n - 1).interval()

    def against(self, value: float) -> Estimate:
        """The distance of the mean from a value, with its error over people.

        Source: Kim et al. 2022 (HIVE), section 5.1, where accuracies are tested against chance. Differences within the
        same people are tested against 0.

        Example:
            >>> test = Summary(53.6, 15.2, 50).against(50).test()
            >>> round(test["t"], 3), round(test["p"], 4)
            (1.675, 0.1004)
        """
        if self.n < 2:
            return Estimate(self.mean - value, reason="fewer than two participants")
        if self.sd == 0:
            return Estimate(self.mean - value, reason="all participants have the same value")
        return Estimate(self.mean - value, self.sd / math.sqrt(self.n), self.n - 1)

    def effect(self, value: float) -> float:
        """Cohen's d of the mean against a value; NaN where :meth:`against` has no error."""
        return (self.mean - value) / self.sd if self.n > 1 and self.sd else math.nan


def between(first: Summary, second: Summary, pooled: bool = False) -> Estimate:
    """The difference of the means of two groups of different people, with its error over people.

    Source: Welch 1947, with the degrees of freedom of Satterthwaite 1946; ``pooled`` assumes equal variances, as the
    t-test of HIVE does. Without an error where a group has fewer than two people or where both have no variance.
    """
    difference, groups = first.mean - second.mean, (first, second)
    variances = [group.sd**2 / max(group.n, 1) for group in groups]
    if min(first.n, second.n) < 2:
        return Estimate(difference, reason="fewer than two participants in a group")
    if sum(variances) == 0:
        return Estimate(difference, reason="all participants of a group have the same value")
    if pooled:
        df = first.n + second.n - 2
        return Estimate(difference, math.sqrt(_variance(first, second) * (1 / first.n + 1 / second.n)), df)
    lost = sum(v**2 / (group.n - 1) for v, group in zip(variances, groups, strict=True))
    return Estimate(difference, math.sqrt(sum(variances)), sum(variances) ** 2 / lost)


def hedges_g(first: Summary, second: Summary) -> float:
    """Standardised difference of two groups, its correction of small samples approximated by ``1 - 3 / (4 df - 1)``.

    Source: Hedges 1981. NaN where :func:`between` has no error.
    """
    if between(first, second).reason:
        return math.nan
    correction = 1 - 3 / (4 * (first.n + second.n - 2) - 1)
    return correction * (first.mean - second.mean) / math.sqrt(_variance(first, second))


def _variance(first: Summary, second: Summary) -> float:
    """The variance of people in two groups, pooled."""
    return ((first.n - 1) * first.sd**2 + (second.n - 1) * second.sd**2) / (first.n + second.n - 2)


def exact_sign_flip(differences: NDArray[np.float64]) -> float:
    """Two-sided p value of a mean under all flips of signs, for few participants (Fisher 1935, section 21).

    SciPy's ``permutation_test`` is 11 times slower, and doubles the smaller tail instead of counting both.

    Args:
        differences: ``(n,)`` from the value tested against, n <= 19.

    Returns:
        The share of the 2^n sums that lie at least as far from 0 as the observed one; NaN without participants.

    Raises:
        ValueError: if there are more than 19 differences.

    Example:
        >>> exact_sign_flip(np.array([1.0, 1.0, 1.0]))
        0.25
    """
    if len(differences) > MAX_EXACT:
        raise ValueError(f"Expected at most {MAX_EXACT} `differences`, but got {len(differences)}.")
    if not len(differences):
        return math.nan
    sums = np.zeros(1)
    for difference in differences:
        sums = np.concatenate([sums + difference, sums - difference])
    slack = 1e-12 * np.abs(differences).sum()  # sums of the same numbers in another order count as equal
    return float((np.abs(sums) >= abs(differences.sum()) - slack).mean())


def person_effect(sample: Summary, items: float) -> float:
    """How much of the spread of accuracies is between people, implied by their standard deviation.

    ``ρ = (s² / (p (1 - p)) - 1 / k) / (1 - 1 / k)``: near 0, everybody answers alike and the spread is the sampling
    error of single answers.

    Args:
        sample: of accuracies in [0, 1].
        items: k, answers per participant, > 1.

    Returns:
        ρ, at most 1 for possible data and negative where people differ less than by chance; NaN where the mean is 0 or
        1 or ``items`` is at most 1.

    Example:
        >>> round(person_effect(Summary(0.712, 0.333, 50), 5), 3)
        0.426
    """
    variance = sample.mean * (1 - sample.mean)
    if not variance > 0 or items <= 1:
        return math.nan
    return (sample.sd**2 / variance - 1 / items) / (1 - 1 / items)
