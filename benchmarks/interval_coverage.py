"""How often each kind of 95 % interval holds the true value, by simulation; the table of ``docs/results/intervals.md``.

    python benchmarks/interval_coverage.py
    python benchmarks/interval_coverage.py --draws 20000 --seed 1

Every case draws many data sets of known truth. The table has the percentage of intervals that contain it and, in
parentheses, of data sets without an interval, because all values are equal and the range has no end.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from protometry.evaluation.tables.markdown import lines
from protometry.evaluation.tables.paired_statistics import difference_interval
from protometry.metrics.functional import balanced_accuracy, f1_score, mean_interval, ratio_interval, wilson_interval
from protometry.metrics.primitives.intervals import Range, stratified_wilson_interval

Floats = NDArray[np.float64]
SIZES = (3, 5, 10, 30, 60, 240)
FRACTION, COUNT, SIGNED = (0.0, 1.0), (0.0, math.inf), (-1.0, 1.0)


@dataclass(frozen=True)
class Case:
    """Data of known truth.

    Args:
        kind: of the interval.
        name: of the distribution.
        covered: for a generator, a number of data sets and their size, whether the interval holds the truth, NaN
            without an interval.
        sizes: number of values, or of images per class for means over classes.
        claimed: whether at least 90 % are claimed from 30 values, or images, on.
    """

    kind: str
    name: str
    covered: Callable[[np.random.Generator, int, int], Floats]
    sizes: tuple[int, ...] = SIZES
    claimed: bool = True


def held(truth: float, low: Tensor | Floats, high: Tensor | Floats) -> Floats:
    """1 where an interval holds the truth, 0 where not, NaN where there is none."""
    low, high = np.asarray(low), np.asarray(high)
    inside = (low <= truth + 1e-12) & (truth - 1e-12 <= high)
    return np.where(np.isnan(low), np.nan, inside)


Draw = Callable[[np.random.Generator, tuple[int, int]], Floats]


def mean(name: str, truth: float, draw: Draw, value_range: Range, claimed: bool = True) -> Case:
    """The mean of values, as of an image or a unit."""

    def covered(generator: np.random.Generator, draws: int, n: int) -> Floats:
        values = torch.from_numpy(draw(generator, (draws, n)))
        sums = values.sum(dim=1), values.square().sum(dim=1), torch.tensor(n)
        return held(truth, *mean_interval(*sums, value_range=value_range))

    return Case("mean", name, covered, claimed=claimed)


def share(truth: float) -> Case:
    """A share of images or units that are right or wrong."""

    def covered(generator: np.random.Generator, draws: int, n: int) -> Floats:
        return held(truth, *wilson_interval(torch.from_numpy(generator.binomial(n, truth, draws)), torch.tensor(n)))

    return Case("share", f"0/1, {100 * truth:g} % ones", covered)


def ratio(name: str, per_object: float, images: float = 1) -> Case:
    """Events among 1 to 5 objects per image, in a share of the images."""

    def covered(generator: np.random.Generator, draws: int, n: int) -> Floats:
        objects = generator.integers(1, 6, (draws, n))
        events = generator.binomial(objects, per_object) * (generator.random((draws, n)) < images)
        sums = [(one * other).sum(axis=1) for one, other in ((events, 1), (objects, 1))]
        sums += [(one * other).sum(axis=1) for one, other in ((events, events), (objects, objects), (events, objects))]
        rows = torch.from_numpy(np.stack(sums, axis=1)).double()
        interval = torch.vmap(lambda row: ratio_interval(row, torch.tensor(n), value_range=FRACTION))
        return held(images * per_object, *interval(rows))

    return Case("ratio", name, covered)


def classes(statistic: str, name: str, recalls: Floats, factor: int = 1, claimed: bool = True) -> Case:
    """Mean over classes of recall or F1; errors go to any other class, and classes but the first have more images."""
    count = len(recalls)
    kernel = {"balanced accuracy": balanced_accuracy, "F1": f1_score}[statistic]
    factors = np.array([1] + [factor] * (count - 1))
    chances = np.where(np.eye(count), recalls[:, None], (1 - recalls[:, None]) / (count - 1))
    truth = float(kernel(torch.from_numpy(np.round(1e9 * factors[:, None] * chances)).long()).mean())

    def covered(generator: np.random.Generator, draws: int, n: int) -> Floats:
        rows = [generator.multinomial(n * more, row, draws) for more, row in zip(factors, chances, strict=True)]
        drawn = torch.from_numpy(np.stack(rows, axis=1))
        values = torch.vmap(kernel)(drawn).nanmean(dim=1)
        return held(
            truth, *torch.vmap(stratified_wilson_interval)(values, drawn.diagonal(dim1=1, dim2=2), drawn.sum(2))
        )

    return Case(statistic, f"{count} classes of n images, {name}", covered, (3, 5, 10, 30), claimed)


def difference(name: str, truth: float, draw: Draw, claimed: bool = True) -> Case:
    """The mean difference of two models on the same images."""

    def covered(generator: np.random.Generator, draws: int, n: int) -> Floats:
        return held(truth, *difference_interval(draw(generator, (n, draws))))

    return Case("paired difference", name, covered, claimed=claimed)


def jumps(chance: float, size: Draw) -> Draw:
    """0 but for rare events."""
    return lambda generator, shape: (generator.random(shape) < chance) * size(generator, shape)


def signs(up: float, down: float) -> Draw:
    """1, -1 or 0."""

    def draw(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
        where = generator.random(shape)
        return 1.0 * (where < up) - 1.0 * (where > 1 - down)

    return draw


def falls(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """1, rarely a little less, and very rarely much less."""
    return 1 - jumps(0.1, lambda g, s: np.where(g.random(s) < 0.05, 0.5, 0.05))(generator, shape)


def uniform(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """In [0, 1)."""
    return generator.random(shape)


CASES = (
    *(share(truth) for truth in (0.0, 0.02, 0.5, 1.0)),
    mean("normal, 0.5 ± 0.1", 0.5, lambda g, s: g.normal(0.5, 0.1, s), FRACTION),
    mean("beta(½, 3), most near 0", 1 / 7, lambda g, s: g.beta(0.5, 3, s), FRACTION),
    mean("2 % of images jump, to 1", 0.02, jumps(0.02, lambda g, s: np.ones(s)), FRACTION),
    mean("2 % of images jump, anywhere in 0..1", 0.01, jumps(0.02, uniform), FRACTION),
    mean("5 % of images jump, anywhere in 0..1", 0.025, jumps(0.05, uniform), FRACTION),
    mean("98 % of units at 1, others anywhere", 0.99, lambda g, s: 1 - jumps(0.02, uniform)(g, s), FRACTION),
    mean("10 % of images fall from 1 by .05, of these 5 % by .5", 0.99275, falls, FRACTION, claimed=False),
    mean("always 0", 0.0, lambda g, s: np.zeros(s), FRACTION),
    mean("0.3, but 2 % jump to 1", 0.314, lambda g, s: np.where(g.random(s) < 0.02, 1.0, 0.3), FRACTION, claimed=False),
    mean("signed: 2 % up, 1 % down", 0.01, signs(0.02, 0.01), SIGNED),
    mean("signed: 2 % up", 0.02, signs(0.02, 0), SIGNED, claimed=False),
    mean("exponential, no upper end", 1.0, lambda g, s: g.exponential(1, s), COUNT),
    mean("2 % jump by 4 ranks, no upper end", 0.08, jumps(0.02, lambda g, s: np.full(s, 4.0)), COUNT),
    mean(
        "2 % jump by ranks, geometric", 0.1, jumps(0.02, lambda g, s: 1.0 * g.geometric(0.2, s)), COUNT, claimed=False
    ),
    mean("lognormal, σ = 1", math.exp(0.5), lambda g, s: g.lognormal(0, 1, s), COUNT, claimed=False),
    ratio("events of 50 % of objects", 0.5),
    ratio("events of 2 % of objects", 0.02),
    ratio("events of half the objects of 10 % of images", 0.5, 0.1),
    ratio("events of all objects of 2 % of images", 1, 0.02),
    *(
        classes(statistic, *options)
        for statistic in ("balanced accuracy", "F1")
        for options in (
            ("recall .98", np.full(20, 0.98)),
            ("recall .7", np.full(100, 0.7)),
            ("recall .5 to 1", np.linspace(0.5, 1, 100)),
            ("recall .5 in one, .99 in 19 of 30 n", np.array([0.5] + [0.99] * 19), 30, False),
        )
    ),
    difference("normal", 0.1, lambda g, s: g.normal(0.1, 1, s)),
    difference("0/1, 3 % better, 1 % worse", 0.02, signs(0.03, 0.01)),
    difference("0/1, 2 % better", 0.02, signs(0.02, 0)),
    difference("0/1, 30 % better, 10 % worse", 0.2, signs(0.3, 0.1)),
    difference("5 % jump, exponential", 0.05, jumps(0.05, lambda g, s: g.exponential(1, s)), claimed=False),
)


def coverage(case: Case, draws: int, seed: int = 0) -> dict[int, tuple[float, float]]:
    """For each size, the share of the intervals that hold the truth, and of data sets without an interval."""
    by_size = {}
    for n in case.sizes:
        covered = case.covered(np.random.default_rng([seed, n]), draws, n)
        none = float(np.isnan(covered).mean())
        by_size[n] = (float(np.nanmean(covered)) if none < 1 else math.nan, none)
    return by_size


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=4000, help="data sets per case and size")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rows = []
    for case in CASES:
        by_size = coverage(case, arguments.draws, arguments.seed)
        texts = {n: f"{100 * held:.1f}" + f" ({100 * none:.0f})" * (none > 0) for n, (held, none) in by_size.items()}
        rows.append([case.kind, case.name, *(texts.get(n, "") for n in SIZES)])
    print("\n".join(lines(["interval", "values", *(f"n = {n}" for n in SIZES)], rows, left=2)))


if __name__ == "__main__":
    main()
