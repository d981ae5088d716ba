"""The power that is planned, in simulated studies."""

import math

import numpy as np
import pytest
from scipy.stats import t as student

from protometry.studies.sample_size import Design, plan
from protometry.studies.statistics.crossed_effects import crossed


def answers_of(design, people, draws, truth):
    """Answers that agree as planned: each is a draw of its own, or one that its person or its image shares.

    Two answers of a person share a draw with probability a², which is their correlation. Where everybody sees two arms,
    the draws of some people are the same in both: so many that their accuracies correlate as planned.
    """
    rng = np.random.default_rng(0)
    own, groups = np.arange(people * design.items), design.groups * design.arms
    number = len(own) if design.images is None else min(design.images, len(own))
    who, sides = np.arange(groups * len(own)) // design.items, np.repeat([1, -1][:groups], len(own))
    images = np.concatenate([own % number + group * number for group in range(groups)])
    accuracy = design.chance + truth * (sides > 0)
    kind, (a, b) = rng.random((draws, len(who))), (math.sqrt(design.icc), math.sqrt(design.icc_images))
    drawn = [rng.random((draws, size)) for size in (groups * people, groups * number, len(who))]
    if design.arms == 2:
        high, low = design.chance + truth, design.chance  # one draw below low in both, or below high in the first only
        same = design.correlation * math.sqrt(high * (1 - high) * low * (1 - low)) / (low * (1 - high))
        first, second = np.split(drawn[0], 2, axis=1)
        drawn[0] = np.hstack([first, np.where(rng.random(first.shape) < same, first, second)])
    shared = np.where(kind < a, drawn[0][:, who], np.where(kind < a + b, drawn[1][:, images], drawn[2]))
    return (shared < accuracy).astype(float), who % people if design.arms == 2 else who, images, sides


@pytest.mark.parametrize("design", [
    Design(0.1, items=5, icc=0.2), Design(0.1, "agreement", items=10, icc=0.05),
    Design(0.1, "output", items=5, icc=0.2, groups=2), Design(0.15, "agreement", items=10, icc=0.1, groups=2),
    Design(0.1, "agreement", items=10, icc=0.1, icc_images=0.05, images=50),
    Design(0.15, "agreement", items=10, icc=0.1, icc_images=0.05, images=50, groups=2),
    Design(0.2, items=10, icc=0.1, icc_images=0.1, images=20),
    Design(0.2, items=10, icc=0.1, icc_images=0.1, images=20, groups=2), Design(0.1, items=5, icc=0.2, arms=2),
    Design(0.1, "agreement", items=10, icc=0.2, arms=2, correlation=0.7),
    Design(0.15, items=10, icc=0.2, icc_images=0.05, images=50, arms=2, correlation=0.5),
], ids=lambda one: f"{one.task}-{one.groups}-{one.arms}-{one.images}")  # fmt: skip
def test_planned_and_simulated_power(design):
    """The test of the analysis in 5,000 studies: two points of power apart, and at most 6 % without an effect."""
    figures = plan(design)
    chance = design.chance if design.groups == design.arms == 1 else 0
    rejected = {}
    for truth in (design.effect, 0.0):
        value, error, df = crossed(*answers_of(design, int(figures["people"]), 5_000, truth))
        rejected[truth] = (abs(value - chance) > student.ppf(0.975, df) * error).mean()
    assert rejected[design.effect] == pytest.approx(figures["power"], abs=0.02)
    assert rejected[0.0] < 0.06
