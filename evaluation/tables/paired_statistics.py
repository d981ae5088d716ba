"""Statistics of paired differences: intervals, a sign-flip test and Holm's correction.

All randomness comes from a seed, and the result of a column does not depend on the other columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from protometry.evaluation.results.values_csv import ImageValues
from protometry.metrics.primitives.checks import check_at_least

MAX_ENTRIES = 1 << 22  # of one chunk of draws: 32 MiB in float64
_SLACK = 1e-12  # of the sum of absolute differences: sums of the same numbers in another order count as equal

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Paired:
    """One metric of two runs on the images on which both are defined.

    Args:
        difference: mean of second - first.
        low: lower bound of its 95 % interval, NaN below two pairs and where all differences are equal.
        p_value: two-sided, of a sign-flip test; NaN without pairs.
        corrected: the same after Holm's correction over all metrics.
    """

    key: str
    first: float
    second: float
    difference: float
    low: float
    high: float
    p_value: float
    corrected: float
    pairs: int


def paired(
    first: ImageValues, second: ImageValues, sample_ids: Sequence[str], draws: int = 10_000, seed: int = 0
) -> list[Paired]:
    """Compare two runs metric by metric.

    Args:
        first: values of one run.
        second: values of the other.
        sample_ids: the images to compare on.
        draws: of the test.
        seed: of these draws.

    Returns:
        One entry per metric that both have, in the order of ``first``. An image counts for a metric if both runs are
        defined on it.

    Example:
        >>> a = ImageValues(["1", "2"], ["general/accuracy"], np.array([[0.0], [1.0]]))
        >>> b = ImageValues(["2", "1"], ["general/accuracy"], np.array([[1.0], [1.0]]))
        >>> (entry,) = paired(a, b, ["1", "2"])
        >>> entry.first, entry.second, entry.difference, entry.p_value, entry.pairs
        (0.5, 1.0, 0.5, 1.0, 2)
    """
    keys = [key for key in first.keys if key in second.keys]
    values = [each.rows(sample_ids)[:, [each.keys.index(key) for key in keys]] for each in (first, second)]
    defined = np.isfinite(values[0]) & np.isfinite(values[1])
    groups: dict[bytes, list[int]] = {}  # metrics defined on the same images share the draws
    for index in range(len(keys)):
        groups.setdefault(defined[:, index].tobytes(), []).append(index)
    by_index: dict[int, Paired] = {}
    for indices in groups.values():
        rows = np.flatnonzero(defined[:, indices[0]])
        a, b = (each[rows][:, indices] for each in values)
        low, high = difference_interval(b - a)
        p_values = sign_flip_test(b - a, draws, seed)
        means = [each.mean(axis=0) if len(rows) else np.full(len(indices), np.nan) for each in (a, b, b - a)]
        for column, index in enumerate(indices):
            mean_a, mean_b, difference = (float(mean[column]) for mean in means)
            bounds, p = (float(low[column]), float(high[column])), float(p_values[column])
            by_index[index] = Paired(keys[index], mean_a, mean_b, difference, *bounds, p, p, len(rows))
    ordered = [by_index[index] for index in range(len(keys))]
    corrected = holm(np.array([entry.p_value for entry in ordered]))
    return [replace(entry, corrected=float(p)) for entry, p in zip(ordered, corrected, strict=True)]


def difference_interval(differences: Floats, confidence: float = 0.95) -> Floats:
    """Interval of the mean of paired differences.

    Student's t. Where more than half of the differences are 0, as for right and wrong predictions, after adding
    one pair that differs in each direction (Bonett and Price 2012) by the root mean square of the others,
    ``Σ d² / Σ |d|``, which is 1 for predictions.

    Args:
        differences: ``(n, m)``, one row per image, one column per metric, finite.
        confidence: level.

    Returns:
        ``(2, m)`` lower and upper bounds; NaN for ``n < 2`` and where all differences are equal, which says nothing
        about other images.

    Raises:
        ValueError: if ``differences`` is not a finite matrix.

    Example:
        >>> difference_interval(np.array([[0.0], [0.0], [0.0], [1.0]])).round(4).T  # as of 0, 0, 0, 1, 1 and -1
        array([[-0.6233,  0.9567]])
    """
    _check(differences)
    if len(differences) < 2:
        return np.full((2, differences.shape[1]), np.nan)
    total, sizes = differences.sum(axis=0), np.abs(differences)
    rare = 2 * (differences == 0).sum(axis=0) > len(differences)
    n = len(differences) + 2 * rare
    mean = total / n
    with np.errstate(invalid="ignore"):  # 0 / 0 where all are 0
        added = np.where(rare, (sizes**2).sum(axis=0) / sizes.sum(axis=0), 0)
    squares = ((differences - mean) ** 2).sum(axis=0) + np.where(rare, 2 * (added**2 + mean**2), 0)
    half_width = student.ppf(0.5 + confidence / 2, n - 1) * np.sqrt(squares / (n - 1) / n)
    equal = np.ptp(differences, axis=0) <= _SLACK * sizes.sum(axis=0)
    bounds: Floats = np.where(equal, np.nan, np.stack([mean - half_width, mean + half_width]))
    return bounds


def sign_flip_test(differences: Floats, draws: int = 10_000, seed: int = 0) -> Floats:
    """Two-sided p values of the mean of paired differences under random flips of their signs.

    Source: Fisher 1935, *The Design of Experiments*, section 21; Monte Carlo form with p = (1 + b) / (1 + draws),
    b the draws whose mean is at least as far from 0 (Phipson and Smyth 2010). For differences of right and wrong
    predictions it is the exact sign test (McNemar's), up to the draws. The smallest p is 1 / (1 + draws).

    Args:
        differences: ``(n, m)``, one row per image, one column per metric, finite.
        draws: number of random flips.
        seed: of the draws.

    Returns:
        ``(m,)`` in (0, 1]; NaN for ``n = 0``.

    Raises:
        ValueError: if ``differences`` is not a finite matrix, ``draws`` is below 1 or ``seed`` below 0.

    Example:
        >>> sign_flip_test(np.array([[0.0, 1.0], [0.0, -1.0]])).tolist()
        [1.0, 1.0]
    """
    _check(differences)
    check_at_least("draws", draws, 1)
    check_at_least("seed", seed, 0)
    n, m = differences.shape
    if n == 0:
        return np.full(m, np.nan)
    observed = np.abs(differences.sum(axis=0)) - _SLACK * np.abs(differences).sum(axis=0)
    generator = np.random.default_rng([seed, 1])
    as_far = np.zeros(m)
    chunk = max(1, MAX_ENTRIES // n)
    for start in range(0, draws, chunk):
        signs = 2.0 * generator.integers(0, 2, (min(chunk, draws - start), n)) - 1.0
        as_far += (np.abs(signs @ differences) >= observed).sum(axis=0)
    p_values: Floats = (1 + as_far) / (1 + draws)
    return p_values


def holm(p_values: Floats) -> Floats:
    """Holm's step-down correction for several tests.

    Source: Holm 1979: with p sorted, adjusted p_(i) = max over j <= i of min(1, (m - j + 1) p_(j)).

    Args:
        p_values: ``(m,)``; NaN entries are not tests and stay NaN.

    Returns:
        ``(m,)`` adjusted p values, each at least its own.

    Example:
        >>> holm(np.array([0.01, 0.04, 0.03, 0.005])).round(6).tolist()
        [0.03, 0.06, 0.06, 0.02]
    """
    adjusted = np.full(p_values.shape, np.nan)
    tests = np.flatnonzero(~np.isnan(p_values))
    order = tests[np.argsort(p_values[tests], kind="stable")]
    remaining = np.arange(len(order), 0, -1)
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, remaining * p_values[order]))
    return adjusted


def _check(differences: Floats) -> None:
    if differences.ndim != 2 or not np.isfinite(differences).all():
        raise ValueError(
            f"Expected argument `differences` to be a finite matrix, but got shape {differences.shape} with "
            f"{int((~np.isfinite(differences)).sum())} entries that are not finite."
        )
