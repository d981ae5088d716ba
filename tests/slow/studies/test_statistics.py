"""How often tests and intervals of studies err, and whether they find what was planted."""

import math
from functools import cache

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import spearmanr

from protometry.studies.flow import Page, item_questions
from protometry.studies.simulation.observer import SimulatedParticipant
from protometry.studies.statistics.agreement import crossed_spearman
from protometry.studies.statistics.crossed_effects import estimate
from protometry.studies.statistics.detection import detection
from protometry.studies.study import Arm, Assignment, Item, ItemKey, Option, Study
from protometry.studies.tasks import task_of
from tests.slow.studies.study_errors import Cell, errors
from tests.studies.test_statistics import planted


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_planted_correlations_lie_in_the_interval(rho):
    generator, truth, held = np.random.default_rng(2), None, 0
    many = [planted(generator, rho)[:2] for _ in range(1000)]
    truth = spearmanr(*(np.concatenate(part) for part in zip(*many, strict=True))).statistic
    for _ in range(200):
        low, high = crossed_spearman(*planted(generator, rho))[1]
        held += low <= truth <= high
    assert held >= 0.92 * 200


@pytest.mark.parametrize(("cell", "people_only"), [
    (Cell(50, 20, False, 0, 1, 0), 0.3), (Cell(50, 50, False, 0, 1, 0), 0.15), (Cell(50, 20, True, 1, 1, 1), 0.15),
    (Cell(10, 20, False, 1, 1, 0), 0.0), (Cell(10, 50, True, 0, 0, 0), 0.0), (Cell(100, 20, False, 0.5, 0.5, 0), 0.2),
])  # fmt: skip
def test_errors_of_the_first_kind_and_coverage(cell, people_only):
    """2,000 studies each; 6.5 % is three standard errors above."""
    result = errors(cell, 2000)
    assert result["rejected, people and images"] < 0.065, result
    assert result["missed, people and images"] < 0.065, result
    assert min(result["rejected, people only"], result["missed, people only"]) > people_only * (not cell.shared), result
    assert result["missed, people only"] >= people_only, result


@cache
def shown(name):
    """A study of 100 photos, every second one classified correctly: each as its page and its key."""
    arm = Arm("main", "none", 80.0, [], [])
    study, task = Study("toy", "Toy", 0, name, [arm], Assignment(50, 5, 5)), task_of(name, "none")
    item = Item("item", "photo", [Option(f"o{number}") for number in range(task.options)])
    questions = item_questions(study, arm, item)
    keys = [ItemKey(str(image), image % 2 == 0, f"o{image % 4}") for image in range(100)]
    return study, [(Page("item", arm, questions, item, image), key) for image, key in enumerate(keys)]


def simulated(name, observer, seed):
    """Whether predictions are right, and whether 50 simulated participants are: 10 forms of 5 photos of each kind."""
    people = np.repeat(np.arange(50), 10)
    images = np.tile(np.arange(10), 50) + 10 * (people // 5)
    study, pages = shown(name)
    task, collected = task_of(name, "none"), []
    for person, image in zip(people.tolist(), images.tolist(), strict=True):
        step, key = pages[image]
        answer = observer.respond(study, step, key, f"{seed} {person}")
        collected.append((key.right, task.is_right(step.item, key, answer)))
    return people, images, *np.array(collected).T


def test_planted_sensitivity_and_criterion_are_recovered_from_simulated_participants():
    """The intervals of 200 studies, seeds 0 to 199, hold d', criterion and accuracies in at least 93 %."""
    observer = SimulatedParticipant("noisy", d_prime=0.8, criterion=-0.3)
    planted = [0.8, -0.3, ndtr(0.4 + 0.3), ndtr(0.4 - 0.3)]
    held = np.zeros(4)
    for seed in range(200):
        people, images, right, judged = simulated("agreement", observer, seed)
        result = detection(judged == right, right, people, images, seed)
        cells = [estimate(judged[kind] * 1.0, people[kind], images[kind]) for kind in (right, ~right)]
        bounds = [result.d_prime_interval, result.criterion_interval, *(cell.interval() for cell in cells)]
        held += [low <= value <= high for value, (low, high) in zip(planted, bounds, strict=True)]
    assert (held >= 186).all(), held


@pytest.mark.parametrize(("policy", "d_prime"), [("guesser", 0.0), ("noisy", 0.7)])
def test_planted_accuracy_is_recovered_from_simulated_participants(policy, d_prime):
    """As above, for the choice among four: the largest of four draws of N(0, 1), d' added to the right one."""
    planted = quad(lambda x: np.exp(-((x - d_prime) ** 2) / 2) / math.sqrt(2 * math.pi) * ndtr(x) ** 3, -8, 9)[0]
    held = 0
    for seed in range(200):
        people, images, _, chosen = simulated("distinction", SimulatedParticipant(policy, d_prime=d_prime), seed)
        low, high = estimate(chosen * 1.0, people, images).interval()
        held += low <= planted <= high
    assert held >= 186
