"""One model of people and images, both of them samples: estimates, intervals, tests, equivalence and power.

An answer is the mean of its arm, plus an effect of its person, one of its image in this arm, and a rest. People and
images are crossed in any incomplete way; an image, or a person, may be in one arm or in both. Variance components are
estimated by moments, as in generalizability theory, so that only the mean is assumed to be normal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.sparse import csr_array
from scipy.stats import nct
from scipy.stats import t as student

FEWEST = 3  # people, and images, in an arm: with two people the test rejects up to 7.5 % at a level of 5 %

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Estimate:
    """A mean, or the difference of two, with the error that it has over other people and other images.

    Attributes:
        value: estimate.
        error: its standard error.
        df: degrees of freedom of the error.
        reason: why there is no error, else empty; then both are NaN.
    """

    value: float
    error: float = math.nan
    df: float = math.nan
    reason: str = ""

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Student's interval; NaN without an error."""
        half = float(student.ppf(0.5 + confidence / 2, self.df)) * self.error
        return self.value - half, self.value + half

    def test(self, value: float = 0.0) -> dict[str, float | str]:
        """Two-sided test of the value, as ``t``, ``df`` and ``p``, or the ``reason`` why there is none."""
        if self.reason:
            return {"reason": self.reason}
        t = (self.value - value) / self.error
        return {"t": t, "df": self.df, "p": float(2 * student.sf(abs(t), self.df))}

    def equivalence(self, margin: float) -> float:
        """P value of two one-sided tests that the value lies within a margin of 0 (Schuirmann 1987).

        Returns:
            The larger of both one-sided p values: below .05, equivalence is shown at that level.

        Raises:
            ValueError: if ``margin`` is not positive.

        Example:
            >>> round(Estimate(0.0, 0.05, 49).equivalence(0.1), 4)  # both one-sided t are 2
            0.0255
        """
        if margin <= 0:
            raise ValueError(f"Expected argument `margin` to be positive, but got {margin}.")
        return float(max(student.sf((margin + sign * self.value) / self.error, self.df) for sign in (1, -1)))

    def power(self, effect: float, alpha: float = 0.05) -> float:
        """Power of the two-sided test of 0 where the true value is ``effect``, by the noncentral t distribution.

        Example:
            >>> round(Estimate(0.0, 1 / 50**0.5, 49).power(0.404), 2)  # Cohen's d of .404 and 50 people
            0.8
        """
        critical, shift = student.ppf(1 - alpha / 2, self.df), abs(effect) / self.error
        with np.errstate(all="ignore"):
            upper, lower = nct.sf(critical, self.df, shift), nct.cdf(-critical, self.df, shift)
        if math.isnan(upper):  # SciPy gives up where the power is all but 1
            upper = 1.0
        return float(min(upper + (0.0 if math.isnan(lower) else lower), 1.0))

    def detectable(self, power: float = 0.8, alpha: float = 0.05) -> float:
        """Smallest true difference that :meth:`test` finds with a power; NaN without an error.

        Example:
            >>> round(Estimate(0.0, 1 / 50**0.5, 49).detectable(), 3)  # Cohen's d of 50 people
            0.404
        """
        if math.isnan(self.error):
            return math.nan
        most = self.error
        while self.power(most, alpha) < power:
            most *= 2
        return float(brentq(lambda effect: self.power(effect, alpha) - power, 0.0, most))

    def equivalence_power(self, margin: float, alpha: float = 0.05) -> float:
        """Power of :meth:`equivalence` at a true value of 0: ``2 F(margin / error - t*) - 1`` with F of Student's t."""
        reach = margin / self.error - student.ppf(1 - alpha, self.df)
        return max(0.0, float(2 * student.cdf(reach, self.df) - 1))


def estimate(values: Floats, people: Indices, images: Indices, sides: Indices | None = None) -> Estimate:
    """The mean over people of their mean answers, or the difference of two arms, with its error.

    Args:
        values: ``(N,)`` answers, such as 1 for right and 0 for wrong.
        people: ``(N,)`` name of the person, the same in both arms.
        images: ``(N,)`` name of the image, the same in both arms.
        sides: ``(N,)`` 1 in the first arm, -1 in the second; None for one arm.

    Returns:
        The estimate; without an error for fewer than three people or images in an arm, and where answers do not vary.

    Example:
        >>> answers = np.array([1, 1, 0, 1, 0, 1, 1, 0, 0], dtype=float)  # of three people to three images
        >>> found = estimate(answers, np.repeat(range(3), 3), np.tile(range(3), 3))
        >>> round(found.value, 3), round(found.error, 3)  # people differ less than the rest: √(MS_i / 9), MS_i = 4/9
        (0.556, 0.222)
    """
    sides = np.ones(len(values), np.int64) if sides is None else sides
    arms = [side for side in (1, -1) if (sides == side).any()]
    few = [
        f"fewer than three {what}{' in an arm' * (len(arms) > 1)}"
        for what, names in (("participants", people), ("images", images))
        if not arms or min(len(np.unique(names[sides == side])) for side in arms) < FEWEST
    ]
    if not arms:
        return Estimate(math.nan, reason=few[0])
    (value,), (error,), (df,) = crossed(values[None], people, images, sides)
    if few:
        return Estimate(float(value), reason=few[0])
    if all(np.ptp(values[sides == side]) == 0 for side in arms):
        return Estimate(float(value), reason=f"all answers{' of an arm' * (len(arms) > 1)} are equal")
    if error < 1e-12:
        return Estimate(float(value), reason="all participants and all images have the same mean")
    return Estimate(float(value), float(error), float(df))


def crossed(values: Floats, people: Indices, images: Indices, sides: Indices) -> tuple[Floats, Floats, Floats]:
    """Estimates of many sets of answers that were given by the same people to the same images.

    Source: the variance of a mean over two crossed samples, as in Brennan 2001, *Generalizability Theory*, and Cameron,
    Gelbach and Miller 2011, equation 2.13. An answer has the weight w = 1 / (people of the arm · answers of the
    person), negative in the second arm, and a residual r from the mean of its arm. With sums of ``w r`` over the
    answers of a person, of an image and of both, ``V = Σ_p sum² + Σ_i sum² - Σ_pi sum²``.

    Residuals are smaller than errors. Sums of an arm are therefore divided by the root of ``1 - Σ_p W² - Σ_i W² + Σ_pi
    W²``, W being the sum of the arm's weights over the same answers. V then has no bias where all people give, and all
    images get, equally many answers. Where everybody sees every image, it equals the analysis of variance,
    ``(MS_p + MS_i - MS_rest) / N``.

    A variance component below 0 counts as 0: V is at least what people alone, or images alone, give. Degrees of freedom
    follow Satterthwaite 1946, ``V² / Σ V_g² / (n_g - 1)``, where g are the people, and the images, of the first arm
    only, of the second only, and of both. Weights, division and lower bound are ours.

    Args:
        values: ``(R, N)``.
        people: ``(N,)``.
        images: ``(N,)``.
        sides: ``(N,)`` 1 or -1.

    Returns:
        Values, standard errors and degrees of freedom, ``(R,)`` each.
    """
    person, image = (np.unique(names, return_inverse=True)[1] for names in (people, images))
    clusters = [_indicator(index) for index in (person, image, person * (image.max() + 1) + image)]
    means = np.zeros(len(values))
    weight_sums: list[list[Floats]] = [[], [], []]  # of weights, by kind of cluster and arm
    sums: list[list[Floats]] = [[], [], []]
    for side in np.unique(sides):
        own = sides == side
        answers = np.bincount(person[own], minlength=int(person.max()) + 1)
        weights = np.where(own, 1 / ((answers > 0).sum() * np.maximum(answers, 1)[person]), 0.0)
        mean = values @ weights
        means += side * mean
        residuals = side * weights * (values - mean[:, None])
        for kind, cluster in enumerate(clusters):
            weight_sums[kind].append(weights @ cluster)
            sums[kind].append(residuals @ cluster)
    squares = np.array([[(weight_sum**2).sum() for weight_sum in arm] for arm in weight_sums])
    scale = np.maximum(1 - squares[0] - squares[1] + squares[2], 0)
    with np.errstate(divide="ignore", invalid="ignore"):  # of one person or image
        joint = _squares(sums, np.broadcast_to(scale, squares.shape))
        alone = _squares(sums[:2], np.maximum(1 - squares[:2], 0))
        both = joint[0].sum(axis=1) + joint[1].sum(axis=1) - joint[2].sum(axis=1)
        totals = [part.sum(axis=1) for part in alone]
        lost = [sum(_by_arms(part, weight_sum)) for part, weight_sum in zip(alone, weight_sums[:2], strict=True)]
        larger = np.where(totals[0] >= totals[1], totals[0] ** 2 / lost[0], totals[1] ** 2 / lost[1])
        least = np.maximum(*totals)
        df = np.where(both > least, both**2 / (lost[0] + lost[1]), larger)
    return means, np.sqrt(np.maximum(both, least)), df


def expected(
    variances: list[float], items: float, people: float, images: float, icc: tuple[float, float],
    correlation: float | None = None,
) -> Estimate:  # fmt: skip
    """The error that :func:`estimate` can be expected to find, for planning; its value is 0.

    Args:
        variances: of single answers, ``p (1 - p)``, of each arm; arms have images of their own.
        items: answers per person and arm.
        people: in each arm.
        images: in each arm.
        icc: shares ρ_p of people and ρ_i of images in the variance of single answers.
        correlation: of what people can do in one arm and in the other, where the same people see both; None where arms
            have people of their own.

    Example:
        >>> one = expected([0.25], 10, 50, 100, (0.2, 0.0))
        >>> round(one.error, 4), round((0.25 * (0.2 / 50 + 0.8 / 500)) ** 0.5, 4)
        (0.0374, 0.0374)
    """
    of_people, of_images = icc
    answers = people * items
    between = [one * (of_people / people + (1 - of_people) / answers) for one in variances]
    if correlation is not None:
        between = [sum(between) - 2 * correlation * of_people / people * math.sqrt(math.prod(variances))]
    by_image = [one * (of_images / images + (1 - of_images) / answers) for one in variances]
    variance = sum(between) + sum(by_image) - sum(variances) / answers
    lost = sum(one**2 / (people - 1) for one in between) + sum(one**2 / (images - 1) for one in by_image)
    return Estimate(0.0, math.sqrt(variance), variance**2 / lost)


def _indicator(index: Indices) -> Any:
    """``(N, clusters)`` matrix that sums answers by cluster."""
    member = np.unique(index, return_inverse=True)[1]
    return csr_array((np.ones(len(member)), (np.arange(len(member)), member)))


def _squares(sums: list[list[Floats]], scales: Floats) -> list[Floats]:
    """Squared sums of every cluster over arms, by kind of cluster, ``(R, clusters)``."""
    roots = np.sqrt(scales)
    return [sum(one / root for one, root in zip(*both, strict=True)) ** 2 for both in zip(sums, roots, strict=True)]


def _by_arms(squares: Floats, weight_sums: list[Floats]) -> list[Floats]:
    """For clusters of the same arms, their part of the variance, squared and divided by its degrees of freedom."""
    arms = sum((weight_sum > 0) * 2**arm for arm, weight_sum in enumerate(weight_sums))
    groups = [arms == code for code in range(1, 2 ** len(weight_sums))]
    return [squares[:, group].sum(axis=1) ** 2 / max(group.sum() - 1, 1) for group in groups]
