"""Slow references in plain numpy, without ``metrics``: what metrics are by definition, and what chance gives."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import hypergeom

Mask = NDArray[np.bool_]
Array = NDArray[np.float64]
Chance = tuple[float, float]  # expectation, standard error


# -- regions ----------------------------------------------------------------------------------------------------------
def box_of(mask: Mask) -> tuple[int, int, int, int]:
    """Inclusive x0, y0, x1, y1."""
    ys, xs = np.nonzero(mask)
    return int(xs.min()), int(ys.min()), int(xs.max()), int(ys.max())


def holds(box: Sequence[int], point: tuple[int, int]) -> bool:
    return box[0] <= point[0] <= box[2] and box[1] <= point[1] <= box[3]


def first_pixel(mask: Mask) -> tuple[int, int]:
    """(x, y) of the first pixel in row-major order."""
    ys, xs = np.nonzero(mask)
    return int(xs[0]), int(ys[0])


def unshared(mask: Mask, other: Mask) -> float:
    """1 - IoU."""
    return 1 - int((mask & other).sum()) / int((mask | other).sum())


def windows(size: int, half_width: int, points: dict[int, tuple[int, int]]) -> NDArray[np.int64]:
    """``(size, size)`` the set of points within reach of each pixel, as a sum of powers of two."""
    result = np.zeros((size, size), dtype=np.int64)
    for index, (x, y) in points.items():
        rows = slice(max(y - half_width, 0), y + half_width + 1)
        result[rows, max(x - half_width, 0) : x + half_width + 1] += 1 << index
    return result


# -- chance: a region of n of N pixels, any as likely as any other ----------------------------------------------------
def mean_over_images(means: Sequence[float], variances: Sequence[float], units: int) -> Chance:
    """Of independent units of independent images, all units of an image alike."""
    return float(np.mean(means)), float(np.sqrt(np.sum(variances) / units)) / len(means)


def hits(pixels: int, drawn: int, marked: int) -> tuple[Array, Array]:
    """How many of ``marked`` pixels are among those drawn, and how likely that is."""
    counts = np.arange(drawn + 1.0)
    return counts, hypergeom(pixels, marked, drawn).pmf(counts)


def moments(values: Array, weights: Array) -> tuple[float, float]:
    """Mean and variance."""
    mean = float((values * weights).sum())
    return mean, float((np.square(values - mean) * weights).sum())


# -- chance: the box around three of the cells ------------------------------------------------------------------------
@cache
def boxes_of_three(side: int) -> tuple[Mask, Array]:
    """``(n, side, side)`` boxes around three distinct cells, all triples equally likely, and their probabilities."""
    counts: dict[tuple[int, int, int, int], int] = {}
    for triple in combinations(range(side * side), 3):
        xs, ys = [cell % side for cell in triple], [cell // side for cell in triple]
        box = min(xs), min(ys), max(xs), max(ys)
        counts[box] = counts.get(box, 0) + 1
    masks = np.zeros((len(counts), side, side), dtype=bool)
    for mask, (x0, y0, x1, y1) in zip(masks, counts, strict=True):
        mask[y0 : y1 + 1, x0 : x1 + 1] = True
    weights = np.array(list(counts.values()), dtype=np.float64)
    return masks, weights / weights.sum()


def changes_outside(maps: Array, unit: int, masks: Mask) -> dict[str, Array]:
    """What each metric says of a unit if nothing survives outside each of n boxes, NaN where undefined.

    Args:
        maps: ``(U, h, w)`` non-negative.
        unit: of the map looked at.
        masks: ``(n, h, w)`` boxes.
    """
    own, left = maps[unit], maps[unit] * masks
    width = own.shape[1]
    flat = left.max(axis=(1, 2)) == 0
    peak, peaks = own.argmax(), left.reshape(len(left), -1).argmax(axis=1)
    region, regions = own > own.max() / 2, left > left.max(axis=(1, 2), keepdims=True) / 2
    shared, either = (region & regions).sum(axis=(1, 2)), (region | regions).sum(axis=(1, 2))
    scores, kept = maps.max(axis=(1, 2)), (maps[None] * masks[:, None]).max(axis=(2, 3))
    rank, ranks = (scores > scores[unit]).sum(), (kept > kept[:, unit : unit + 1]).sum(axis=1)
    return {
        "vlc": np.zeros(len(masks)),
        "vac": np.zeros(len(masks)),
        "plc": np.abs(peak % width - peaks % width) + np.abs(peak // width - peaks // width) * 1.0,
        "psc": (scores[unit] - kept[:, unit]) / scores[unit],
        "prc": np.abs(ranks - rank) * 1.0,
        "palc": np.where(flat, np.nan, 1 - shared / either),
        "pac": 1 - left.sum(axis=(1, 2)) / own.sum(),
    }


def image_first(values: list[Array], weights: Array) -> tuple[float, float, float]:
    """Of the mean over the defined ones of independent units: mean, variance, and how likely any is defined.

    Args:
        values: for each unit its value in each of n cases, NaN where undefined.
        weights: ``(n,)`` probabilities of the cases.
    """
    defined = [float(weights[~np.isnan(v)].sum()) for v in values]
    stats = [
        moments(v[~np.isnan(v)], weights[~np.isnan(v)] / p) if p else (0.0, 0.0)
        for v, p in zip(values, defined, strict=True)
    ]
    first = second = total = 0.0
    for size in range(1, len(values) + 1):
        for chosen in combinations(range(len(values)), size):
            likely = float(np.prod([p if i in chosen else 1 - p for i, p in enumerate(defined)]))
            mean = sum(stats[i][0] for i in chosen) / size
            total += likely
            first += likely * mean
            second += likely * (sum(stats[i][1] for i in chosen) / size**2 + mean**2)
    mean = first / total
    return mean, second / total - mean**2, total


# -- chance: purity of a unit that points anywhere --------------------------------------------------------------------
def random_purity(
    points: list[dict[int, tuple[int, int]]], groups: Sequence[int], size: int, patch: int, draws: int = 1500
) -> tuple[float, float]:
    """Mean and standard deviation over units whose ten images and peaks are drawn at random."""
    generator = np.random.default_rng(0)
    values = []
    for _ in range(draws):
        inside, seen = np.zeros(max(groups) + 1), np.zeros(max(groups) + 1)
        for image in generator.choice(len(points), 10, replace=False):
            x, y = ((2 * generator.integers(size, size=2) * (size - patch) + size - 1) // (2 * (size - 1))).tolist()
            box = x, y, x + patch - 1, y + patch - 1
            for group in set(groups):
                result = [holds(box, point) for j, point in points[image].items() if groups[j] == group]
                inside[group] += any(result)
                seen[group] += bool(result)
        values.append((inside[seen > 0] / seen[seen > 0]).max())
    return float(np.mean(values)), float(np.std(values))
