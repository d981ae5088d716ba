"""How often tests and intervals of studies err, by simulation; the tables of ``docs/studies.md``.

    python benchmarks/study_errors.py
    python benchmarks/study_errors.py --draws 10000 --seed 1

Every cell of the grid draws many studies of two arms with different people, ten answers each, in which both arms have
the same accuracy, one half over all people and images. Effects of people, of images, and of images with a method are
normal, in logits. The tables have percentages: tests between the arms at a level of 5 % that reject, and 95 %
intervals of the first arm's accuracy that miss the truth; by Welch's and Student's t over people, and over both.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import t as student

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from protometry.evaluation.tables.markdown import lines
from protometry.studies.statistics.crossed import crossed

ITEMS = 10
Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


class Cell(NamedTuple):
    """People in an arm, images, whether both arms show the same, and standard deviations of effects in logits."""

    people: int
    images: int
    shared: bool
    of_people: float
    of_images: float
    of_both: float  # images with a method, the interaction


EFFECTS = ((0, 0, 0), (0.5, 0.5, 0), (1, 1, 0), (0, 1, 0), (1, 0, 0), (1, 1, 1), (0, 0, 1))
GRID = [
    Cell(*size, *effects)
    for *size, effects in itertools.product((10, 20, 50, 100), (20, 50), (False, True), EFFECTS)
    if size[2] or not effects[2]  # different images have no interaction apart from their effect
]


def studies(cell: Cell, draws: int, seed: int) -> tuple[Floats, Indices, Indices, Indices]:
    """Answers ``(draws, N)``, and people, images and sides of each."""
    rng = np.random.default_rng([seed, *(round(10 * value) for value in cell)])
    own = np.arange(cell.people * ITEMS)
    people = np.concatenate([own, own + len(own)]) // ITEMS
    images = np.concatenate([own % cell.images, own % cell.images + (0 if cell.shared else cell.images)])
    sides = np.repeat([1, -1], len(own))
    logits = rng.normal(0, cell.of_people, (draws, 2 * cell.people))[:, people]
    logits += rng.normal(0, cell.of_images, (draws, 2 * cell.images))[:, images]
    logits += rng.normal(0, cell.of_both, (draws, 4 * cell.images))[:, 2 * images + (sides > 0)]
    return (rng.random(logits.shape) < expit(logits)).astype(np.float64), people, images, sides


def errors(cell: Cell, draws: int, seed: int = 0) -> dict[str, float]:
    """Shares of tests between arms that reject, and of intervals of the first arm that miss one half."""
    answers, people, images, sides = studies(cell, draws, seed)
    first = sides > 0
    means = answers.reshape(draws, 2, cell.people, ITEMS).mean(axis=3)
    variance = means.var(axis=2, ddof=1) / cell.people
    gap, mean = means.mean(axis=2) @ [1, -1], means[:, 0].mean(axis=1)
    with np.errstate(all="ignore"):
        welch = variance.sum(axis=1) ** 2 / ((variance**2).sum(axis=1) / (cell.people - 1))
    both = crossed(answers, people, images, sides)
    one = crossed(answers[:, first], people[first], images[first], sides[first])

    def beyond(shift: Floats, error: Floats, df: Floats | float) -> float:
        return float((np.abs(shift) > student.ppf(0.975, df) * error).mean())

    return {
        "rejected, people only": beyond(gap, np.sqrt(variance.sum(axis=1)), welch),
        "rejected, people and images": beyond(*both),
        "missed, people only": beyond(mean - 0.5, np.sqrt(variance[:, 0]), cell.people - 1),
        "missed, people and images": beyond(one[0] - 0.5, *one[1:]),
    }


def main() -> None:
    """Print the table, and the range over the grid."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=2000, help="studies per cell")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rows = []
    for cell in GRID:
        rates = errors(cell, arguments.draws, arguments.seed)
        images = f"{cell.images} {'shared' if cell.shared else 'different'}"
        effects = [f"{value:g}" for value in cell[3:]]
        rows.append([str(cell.people), images, *effects, *(f"{100 * value:.1f}" for value in rates.values())])
    columns = ["rejected, people only", "rejected, both", "missed, people only", "missed, both"]
    print("\n".join(lines(["people", "images", "person SD", "image SD", "image × method SD", *columns], rows, left=2)))
    for place, name in enumerate(columns, 5):
        values = [float(row[place]) for row in rows]
        print(f"{name}: {min(values):.1f} to {max(values):.1f} %")


if __name__ == "__main__":
    main()
