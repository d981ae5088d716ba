"""Signal detection: how well people separate right from wrong predictions, and how readily they believe either."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

DRAWS = 2000
MAX_ENTRIES = 1 << 22  # of one chunk of bootstrap weights: 32 MiB

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Detection:
    """Sensitivity and criterion of the belief in predictions.

    Attributes:
        d_prime: ``z(H) - z(F)``: 0 where right and wrong predictions are believed alike.
        criterion: ``-(z(H) + z(F)) / 2``: below 0 where people tend to believe.
        d_prime_interval: 95 % bounds.
        criterion_interval: 95 % bounds.
    """

    d_prime: float
    criterion: float
    d_prime_interval: tuple[float, float] = (math.nan, math.nan)
    criterion_interval: tuple[float, float] = (math.nan, math.nan)


def detection(
    believed: NDArray[np.bool_], right: NDArray[np.bool_], people: Indices, images: Indices, seed: int = 0
) -> Detection:
    """Sensitivity and criterion of answers, pooled over people, with intervals over people and images.

    Source: Green and Swets 1966; Macmillan and Creelman 2005, chapters 1 and 2.

    Counts are pooled, and rates are ``(x + 1/2) / (n + 1)`` (Hautus 1995): a mean over people who saw few images each
    would be biased towards 0.

    Args:
        believed: ``(N,)`` whether the answer was that the prediction is right.
        right: ``(N,)`` whether it is.
        people: ``(N,)`` index of the person.
        images: ``(N,)`` index of the image.
        seed: of the bootstrap.

    Returns:
        All NaN where there are no right or no wrong predictions.
    """
    if right.all() or not right.any():
        return Detection(math.nan, math.nan)

    def statistics(weights: Floats) -> Floats:
        hits, false = (
            ndtri(((weights[:, kind] @ believed[kind]) + 0.5) / (weights[:, kind].sum(axis=1) + 1))
            for kind in (right, ~right)
        )
        return np.stack([hits - false, -(hits + false) / 2], axis=1)

    d_prime, criterion = statistics(np.ones((1, len(believed))))[0].tolist()
    return Detection(d_prime, criterion, *bootstrap_intervals(statistics, people, images, seed=seed))


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
    return [percentile_interval(column) for column in np.concatenate(values).T]


def percentile_interval(drawn: Floats) -> tuple[float, float]:
    """What lies between the 2.5th and the 97.5th percentile of resampled values; NaN where none is finite."""
    finite = drawn[np.isfinite(drawn)]
    if not len(finite):
        return math.nan, math.nan
    low, high = np.quantile(finite, [0.025, 0.975]).tolist()
    return low, high
