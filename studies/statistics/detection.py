"""Signal detection: how well people tell right from wrong predictions, apart from how readily they believe either."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from studies.statistics.clusters import bootstrap_intervals

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
