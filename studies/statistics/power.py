"""Power and sample sizes of the tests of a study, and how much the accuracies of people will spread."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.stats import nct
from scipy.stats import t as student

MAX_PEOPLE = 1_000_000


def power(effect: float, n: int, *, groups: int = 1, alpha: float = 0.05) -> float:
    """Power of a two-sided t-test.

    Source: Cohen 1988; ``1 - F(t*; df, δ) + F(-t*; df, δ)`` with F the noncentral t distribution, ``δ = d √n`` and
    ``df = n - 1`` for one sample or pairs, ``δ = d √(n / 2)`` and ``df = 2 n - 2`` for two groups of n people each.

    Args:
        effect: Cohen's d.
        n: people (per group).
        groups: 1 or 2.
        alpha: level of the test.

    Example:
        >>> round(power(0.404, 50), 2), round(power(0.566, 50, groups=2), 2)
        (0.8, 0.8)
    """
    return power_of(abs(effect) * math.sqrt(n / groups), groups * (n - 1), alpha)


def power_of(shift: float, df: float, alpha: float = 0.05) -> float:
    """Power of a two-sided t-test whose statistic has the noncentral t distribution.

    Args:
        shift: noncentrality, the expected difference in standard errors.
        df: degrees of freedom.
        alpha: level of the test.
    """
    critical = student.ppf(1 - alpha / 2, df)
    with np.errstate(all="ignore"):
        upper, lower = nct.sf(critical, df, shift), nct.cdf(-critical, df, shift)
    if math.isnan(upper):  # SciPy gives up where the power is all but 1
        upper = 1.0
    return float(min(upper + (0.0 if math.isnan(lower) else lower), 1.0))


def people_needed(effect: float, wanted: float, *, groups: int = 1, alpha: float = 0.05) -> int:
    """Smallest number of people (per group) whose test has the wanted power.

    Raises:
        ValueError: if a million people do not suffice, as for an effect of 0.

    Example:
        >>> people_needed(0.5, 0.8), people_needed(0.5, 0.8, groups=2)
        (34, 64)
    """
    return smallest(lambda n: power(effect, n, groups=groups, alpha=alpha) >= wanted)


def people_for_equivalence(margin: float, wanted: float, *, groups: int = 1, alpha: float = 0.05) -> int:
    """People (per group) needed to show by two one-sided tests that a true difference of 0 lies within a margin.

    The power is ``2 F(margin √(n / groups) - t*) - 1`` with F the t distribution, the usual approximation.

    Args:
        margin: in standard deviations, > 0.
        wanted: power.
        groups: 1 or 2.
        alpha: level of each one-sided test.
    """

    def enough(n: int) -> bool:
        df = groups * (n - 1)
        reach = margin * math.sqrt(n / groups) - student.ppf(1 - alpha, df)
        return bool(2 * student.cdf(reach, df) - 1 >= wanted)

    return smallest(enough)


def accuracy_sd(accuracy: float, items: float, icc: float = 0.0) -> float:
    """Standard deviation over people of their accuracy: ``σ² = p (1 - p) (1 / k + ρ (1 - 1 / k))``.

    Args:
        accuracy: p, expected.
        items: k, answers per person.
        icc: ρ, the share of the variance of single answers that is between people.

    Example:
        >>> [round(accuracy_sd(0.25, 5, icc), 3) for icc in (0, 0.05, 0.2)]
        [0.194, 0.212, 0.26]
    """
    return math.sqrt(accuracy * (1 - accuracy) * (1 / items + icc * (1 - 1 / items)))


def accuracy_error(accuracy: float, items: float, *, people: float, images: float, icc: tuple[float, float]) -> float:
    """Standard error of the mean accuracy where the images are a sample too.

    ``Var = p (1 - p) (ρ_p / n + ρ_i / I + (1 - ρ_p - ρ_i) / (n k))``: it never falls below the part of the images,
    however many people take part.

    Args:
        accuracy: p, expected.
        items: k, answers per person.
        people: n.
        images: I, different images in all; infinite where they are no sample.
        icc: shares ρ_p of people and ρ_i of images in the variance of single answers.
    """
    of_people, of_images = icc
    rest = (1 - of_people - of_images) / (people * items)
    return math.sqrt(accuracy * (1 - accuracy) * (of_people / people + of_images / images + rest))


def smallest(enough: Callable[[int], bool]) -> int:
    """Smallest number of people, at least 2, from which on a condition holds.

    Raises:
        ValueError: if it does not hold for a million.
    """
    high = 2
    while not enough(high):
        high *= 2
        if high > MAX_PEOPLE:
            raise ValueError(
                f"More than {MAX_PEOPLE} people would be needed: expect a larger effect, or a lower power."
            )
    low = max(high // 2, 1)  # known not to be enough, unless high is 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
