"""Inference where both people and images are samples: the default test of accuracy, and a bootstrap over both."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from studies.statistics.comparisons import TTest, no_test

DRAWS, CONFIDENCE = 2000, 0.95
MAX_ENTRIES = 1 << 22  # of one chunk of bootstrap weights: 32 MiB

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


def clustered_test(values: Floats, people: Indices, images: Indices, chance: float) -> tuple[TTest, float]:
    """Test the mean of answers against chance with errors that are clustered by person and by image.

    Source: Cameron, Gelbach and Miller 2011, *Robust inference with multiway clustering*, equation 2.13. With residuals
    r of N answers, n people and I images: ``V_p = n / (n - 1) Σ_p (Σ r)² / N²``, ``V_i`` likewise over images, ``V_c =
    Σ r² / N²`` and ``V = max(V_p + V_i - V_c, V_p, V_i)``; ``t = (mean - chance) / √V`` with min(n, I) - 1 degrees of
    freedom. The lower bound of V and the degrees of freedom are ours.

    Args:
        values: ``(N,)`` answers, 1 for right and 0 for wrong.
        people: ``(N,)`` index of the person, >= 0.
        images: ``(N,)`` index of the image, >= 0.
        chance: mean to test against.

    Returns:
        The test, whose effect is the difference from chance, and the standard error of the mean. Without a result for
        fewer than two people or images, and where all answers are equal.
    """
    _, person = np.unique(people, return_inverse=True)
    _, image = np.unique(images, return_inverse=True)
    n, number = (int(index.max()) + 1 if len(index) else 0 for index in (person, image))
    if min(n, number) < 2:
        return no_test(f"fewer than two {'participants' if n < 2 else 'images'}"), math.nan
    residuals = values - values.mean()
    if not residuals.any():
        return no_test("all answers are equal"), math.nan
    by_person, by_image = (
        count / (count - 1) * (np.bincount(index, residuals) ** 2).sum() / len(values) ** 2
        for count, index in ((n, person), (number, image))
    )
    both = by_person + by_image - (residuals**2).sum() / len(values) ** 2
    error = math.sqrt(max(both, by_person, by_image))
    if error < 1e-12:  # every person and every image has the mean of all
        return no_test("all participants and all images have the same mean"), math.nan
    difference, df = float(values.mean()) - chance, min(n, number) - 1
    t = difference / error
    return TTest(t, df, float(2 * student.sf(abs(t), df)), difference), error


def bootstrap_intervals(
    statistic: Callable[[Floats], Floats], people: Indices, images: Indices, *, seed: int = 0
) -> list[tuple[float, float]]:
    """95 % percentile intervals of statistics under 2,000 resamples of both people and images.

    Source: Owen and Eckles 2012, *Bootstrapping data arrays of arbitrary order*: an answer counts as often as its
    person was drawn times as often as its image was drawn. The intervals are conservative.

    Args:
        statistic: maps weights ``(draws, N)`` of the answers to values ``(draws, m)``.
        people: ``(N,)`` index of the person of an answer.
        images: ``(N,)`` index of the image.
        seed: of the resamples.

    Returns:
        Lower and upper bound of every statistic; NaN where there are fewer than two people or images, or no draw gave
        a value.
    """
    names, person = np.unique(people, return_inverse=True)
    pictures, image = np.unique(images, return_inverse=True)
    if min(len(names), len(pictures)) < 2:
        return [(math.nan, math.nan)] * statistic(np.ones((1, len(people)))).shape[1]
    generator = np.random.default_rng([seed, 2])
    values = []
    chunk = max(1, MAX_ENTRIES // len(people))
    for start in range(0, DRAWS, chunk):
        size = min(chunk, DRAWS - start)
        weights = np.ones((size, len(people)))
        for number, index in ((len(names), person), (len(pictures), image)):
            weights *= generator.multinomial(number, np.full(number, 1 / number), size)[:, index]
        values.append(statistic(weights))
    drawn = np.concatenate(values)
    bounds = []
    for column in drawn.T:
        told = column[np.isfinite(column)]
        quantiles = [0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2]
        low, high = np.quantile(told, quantiles) if len(told) else (math.nan, math.nan)
        bounds.append((float(low), float(high)))
    return bounds
