"""Tests over people only, for comparison with HIVE: against a value, between two groups, and within the same people.

They ask whether other people would do as well on these very images; ``crossed`` asks it of other images too. They take
means, standard deviations and numbers of people, so that published values can be tested like one's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

MAX_EXACT = 19  # participants: all 2^19 flips of their signs are enumerated


@dataclass(frozen=True)
class Summary:
    """Mean of one value per participant.

    Attributes:
        mean: over participants.
        sd: standard deviation over participants, with n - 1.
        n: number of participants.

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

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Student's interval of the mean, ``mean ± t s / √n``; NaN for fewer than two participants."""
        half = _quantile(confidence, self.n - 1) * self.sd / math.sqrt(self.n) if self.n > 1 else math.nan
        return self.mean - half, self.mean + half


@dataclass(frozen=True)
class TTest:
    """Result of a two-sided test.

    Attributes:
        t: Student's statistic.
        df: its degrees of freedom.
        p: two-sided p value.
        effect: Cohen's d of one sample, Hedges' g of two.
        reason: why there is no result, else empty; then the numbers are NaN.
    """

    t: float
    df: float
    p: float
    effect: float
    reason: str = ""


def no_test(reason: str) -> TTest:
    """A test that cannot be made, with its reason."""
    return TTest(math.nan, math.nan, math.nan, math.nan, reason)


def against(sample: Summary, value: float) -> TTest:
    """Test the mean of one sample against a value.

    Source: Kim et al. 2022 (HIVE), section 5.1, where accuracies are tested against chance.
    ``t = (mean - value) / (sd / √n)`` with n - 1 degrees of freedom, ``d = (mean - value) / sd``. Differences within
    the same people are tested against 0 by this function.

    Args:
        sample: of one value per participant.
        value: to test against, such as the accuracy of guessing.

    Returns:
        The test; without a result for fewer than two participants and where all have the same value.

    Example:
        >>> result = against(Summary(53.6, 15.2, 50), 50)
        >>> round(result.t, 3), round(result.p, 4)
        (1.675, 0.1004)
    """
    if sample.n < 2:
        return no_test("fewer than two participants")
    if sample.sd == 0:
        return no_test("all participants have the same value")
    effect = (sample.mean - value) / sample.sd
    return _student(effect * math.sqrt(sample.n), sample.n - 1, effect)


def between(first: Summary, second: Summary, pooled: bool = False) -> TTest:
    """Test whether two groups of different people have the same mean.

    Source: Welch 1947, with the degrees of freedom of Satterthwaite 1946; Hedges 1981 for g with its exact correction
    of small samples approximated by ``1 - 3 / (4 df - 1)``.

    Args:
        first: one group.
        second: the other.
        pooled: assume equal variances, as the t-test of HIVE does, instead of Welch's.

    Returns:
        The test; without a result where a group has fewer than two people or where both have no variance.
    """
    if min(first.n, second.n) < 2:
        return no_test("fewer than two participants in a group")
    variances = [group.sd**2 / group.n for group in (first, second)]
    if sum(variances) == 0:
        return no_test("all participants of a group have the same value")
    difference, total = first.mean - second.mean, first.n + second.n - 2
    variance = ((first.n - 1) * first.sd**2 + (second.n - 1) * second.sd**2) / total
    effect = (1 - 3 / (4 * total - 1)) * difference / math.sqrt(variance)
    if pooled:
        return _student(difference / math.sqrt(variance * (1 / first.n + 1 / second.n)), total, effect)
    squares = sum(v**2 / (group.n - 1) for v, group in zip(variances, (first, second), strict=True))
    return _student(difference / math.sqrt(sum(variances)), sum(variances) ** 2 / squares, effect)


def exact_sign_flip(differences: NDArray[np.float64]) -> float:
    """Two-sided p value of a mean under all flips of signs, for few participants (Fisher 1935, section 21).

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


def _student(t: float, df: float, effect: float) -> TTest:
    return TTest(t, df, float(2 * student.sf(abs(t), df)), effect)


def _quantile(confidence: float, df: float) -> float:
    return float(student.ppf(0.5 + confidence / 2, df))
