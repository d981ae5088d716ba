"""How often tests and intervals of studies err, by simulation.

Every cell draws many studies of two arms with different people, ten answers each, in which both arms have the same
accuracy, one half over all people and images. Effects of people, of images, and of images with a method are normal, in
logits.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import t as student

from protometry.studies.statistics.crossed_effects import crossed

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
