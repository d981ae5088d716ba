"""Statistics of ratings: confidence against being right, people against each other, and people against the model."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import permutation_test, rankdata

from protometry.studies.statistics.detection import DRAWS, bootstrap_intervals, percentile_interval

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
PERMUTATIONS, MAX_ENTRIES = 9999, 1 << 20


def gamma(levels: Floats, right: NDArray[np.bool_]) -> float:
    """Association of confidence and being right (Goodman and Kruskal 1954): (C - D) / (C + D).

    Args:
        levels: ``(N,)`` confidence.
        right: ``(N,)`` whether the answer is right.

    Returns:
        In [-1, 1], 1 where every right answer is given with more confidence than every wrong one; NaN without untied
        pairs.

    Example:
        >>> gamma(np.array([1.0, 2.0, 3.0, 3.0]), np.array([False, True, True, False]))
        0.3333333333333333
    """
    order = np.unique(levels)
    table = np.stack([[(levels[right == kind] == level).sum() for level in order] for kind in (False, True)])
    concordant = (table[0] * (table[1].sum() - np.cumsum(table[1]))).sum()
    discordant = (table[1] * (table[0].sum() - np.cumsum(table[0]))).sum()
    pairs = concordant + discordant
    return float((concordant - discordant) / pairs) if pairs else math.nan


def brier(levels: Floats, right: NDArray[np.bool_], points: int, chance: float) -> float:
    """Brier score of confidence, read as a probability from chance to 1 (Brier 1950); lower is better.

    Args:
        levels: ``(N,)`` in 1 to ``points``; level l stands for ``chance + (1 - chance) (l - 1) / (points - 1)``.
        right: ``(N,)`` whether the answer is right.
        points: of the scale.
        chance: accuracy of guessing.

    Example:
        >>> brier(np.array([5.0, 1.0]), np.array([True, False]), 5, 0.5)
        0.125
    """
    stated = chance + (1 - chance) * (levels - 1) / (points - 1)
    return float(((stated - right) ** 2).mean()) if len(levels) else math.nan


def krippendorff_alpha(ratings: Floats) -> float:
    """Agreement of people who rated the same things (Krippendorff 2011, *Computing Krippendorff's alpha-reliability*).

    ``α = 1 - (n - 1) Σ o_ab δ²_ab / Σ n_a n_b δ²_ab`` over the coincidences o of values within things that at least two
    people rated, with the differences δ of ordinal values.

    Args:
        ratings: ``(people, things)``, NaN where a person did not rate a thing.

    Returns:
        At most 1, which is perfect agreement; 0 is chance. NaN without pairs or where all values are equal.
    """
    values = np.unique(ratings[~np.isnan(ratings)])
    counts = np.stack([(ratings == value).sum(axis=0) for value in values]) if len(values) else np.zeros((0, 0))
    counts = counts[:, counts.sum(axis=0) > 1].astype(np.float64)
    pairs = counts / (counts.sum(axis=0) - 1)
    coincidences = pairs @ counts.T - np.diag(pairs.sum(axis=1))
    totals = coincidences.sum(axis=1)
    middle = np.cumsum(totals) - totals / 2  # sum of n_g from a to b, less half of both ends
    distances = np.subtract.outer(middle, middle) ** 2
    expected = (np.outer(totals, totals) * distances).sum()
    return float(1 - (totals.sum() - 1) * (coincidences * distances).sum() / expected) if expected else math.nan


@dataclass(frozen=True)
class Correlation:
    """A rank correlation.

    Attributes:
        value: in [-1, 1]; positive where people and model agree.
        p: two-sided, of :func:`spearman`.
        n: things that were rated.
        interval: 95 % bounds over images.
    """

    value: float
    p: float
    n: int
    interval: tuple[float, float] = (math.nan, math.nan)


def spearman(first: Floats, second: Floats) -> tuple[float, float]:
    """Spearman's rank correlation, with mean ranks for ties, and its two-sided p value.

    The p value comes from permutations of one side (SciPy's ``permutation_test``): all of them up to seven pairs, else
    9,999 drawn with a fixed seed, which bounds it from below by 2 / 10,000 (Phipson and Smyth 2010). Student's t, the
    usual approximation, gives p = 0 for ten ranks in perfect order.

    Returns:
        Both NaN below three pairs or where one side is constant.

    Example:
        >>> spearman(np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, 4.0, 6.0, 8.0]))  # 2 of 24 orders
        (1.0, 0.08333333333333333)
    """
    if len(first) < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return math.nan, math.nan
    centred = [rankdata(side) - (len(side) + 1) / 2 for side in (first, second)]
    one, other = (ranks / np.linalg.norm(ranks) for ranks in centred)
    tested = permutation_test(
        (one,), lambda ranks, axis: ranks @ other, permutation_type="pairings", vectorized=True,
        n_resamples=PERMUTATIONS, batch=max(1, MAX_ENTRIES // len(first)), rng=np.random.default_rng(0),
    )  # fmt: skip
    return round(float(tested.statistic), 12), float(tested.pvalue)


def weighted_spearman(first: Floats, second: Floats, weights: Floats) -> Floats:
    """Spearman's correlation of pairs that are repeated.

    Args:
        first: ``(N,)``.
        second: ``(N,)``.
        weights: ``(draws, N)``, how often each pair is there, whole numbers.

    Returns:
        ``(draws,)``; NaN where one side is constant.
    """
    ranks = [_weighted_ranks(values, weights) for values in (first, second)]
    total = weights.sum(axis=1, keepdims=True)
    one, other = (rank - (weights * rank).sum(axis=1, keepdims=True) / total for rank in ranks)
    scale = np.sqrt((weights * one**2).sum(axis=1) * (weights * other**2).sum(axis=1))
    covariance = (weights * one * other).sum(axis=1)
    values: Floats = np.divide(covariance, scale, out=np.full(len(weights), np.nan), where=scale > 0)
    return values


def crossed_spearman(
    first: Floats, second: Floats, people: Indices, images: Indices
) -> tuple[float, tuple[float, float]]:
    """Spearman's correlation of answers with values of their images, and its interval over people and images.

    The interval is that of :func:`~protometry.studies.statistics.detection.bootstrap_intervals`. There is no p value:
    permutations would take the answers of a person, and to an image, for independent.

    Args:
        first: ``(N,)`` answers.
        second: ``(N,)`` the value of the image of each.
        people: ``(N,)`` index of the person.
        images: ``(N,)`` index of the image.

    Returns:
        NaN where either side is constant, or there are no answers.
    """
    if not len(first):
        return math.nan, (math.nan, math.nan)
    value = float(weighted_spearman(first, second, np.ones((1, len(first))))[0])
    (interval,) = bootstrap_intervals(lambda drawn: weighted_spearman(first, second, drawn)[:, None], people, images)
    return value, interval


def _weighted_ranks(values: Floats, weights: Floats) -> Floats:
    _, group = np.unique(values, return_inverse=True)
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    sizes = np.add.reduceat(weights[:, order], starts, axis=1)
    ranks: Floats = (np.cumsum(sizes, axis=1) - (sizes - 1) / 2)[:, group]
    return ranks


def similarity_correlation(
    ratings: Floats, people: Indices, rows: Indices, scores: Floats, images: Indices
) -> Correlation:
    """Correlation of people's similarity ratings with the scores of the model.

    Ratings are standardised within every person, averaged per row and ranked against the scores. The interval
    resamples images 2000 times, because the rows of an image belong together. People who gave one rating throughout
    say nothing and are left out.

    Args:
        ratings: ``(N,)`` of people.
        people: ``(N,)`` index of the person.
        rows: ``(N,)`` index of the rated row into ``scores``.
        scores: ``(R,)`` of the model.
        images: ``(R,)`` index of the image of a row.

    Returns:
        The correlation over rows that somebody rated.
    """
    _, person = np.unique(people, return_inverse=True)
    counts = np.bincount(person)
    mean = np.bincount(person, ratings) / counts
    spread = np.sqrt(np.maximum(np.bincount(person, (ratings - mean[person]) ** 2) / counts, 0))
    varied = spread[person] > 0
    standard = (ratings - mean[person])[varied] / spread[person][varied]
    ratings_per_row = np.bincount(rows[varied], minlength=len(scores))
    kept = ratings_per_row > 0
    rated = np.bincount(rows[varied], standard, minlength=len(scores))[kept] / ratings_per_row[kept]
    scored, image = scores[kept], images[kept]
    value, p = spearman(rated, scored)
    names, member = np.unique(image, return_inverse=True)
    interval = (math.nan, math.nan)
    if len(names) > 1:
        draws = np.random.default_rng([0, 3]).multinomial(len(names), np.full(len(names), 1 / len(names)), DRAWS)
        interval = percentile_interval(weighted_spearman(rated, scored, draws[:, member].astype(np.float64)))
    return Correlation(value, p, len(scored), interval)
