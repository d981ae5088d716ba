"""The results of one arm: every figure with its spread, its interval, and its tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protometry.studies.analysis.graded import ItemAnswer, Person
from protometry.studies.questions import NO_SWITCH, POINTS
from protometry.studies.statistics.agreement import brier, gamma
from protometry.studies.statistics.comparisons import (
    MAX_EXACT,
    Summary,
    between,
    exact_sign_flip,
    hedges_g,
    person_effect,
)
from protometry.studies.statistics.crossed_effects import Estimate, estimate
from protometry.studies.statistics.detection import detection
from protometry.studies.study import OPTIONS, Arm, TaskName
from protometry.studies.tasks import Task

Floats = NDArray[np.float64]


@dataclass
class StudyResult:
    """One figure.

    Attributes:
        sd: over participants, where the value is a mean over them.
        n: participants, or things that were rated.
        interval: 95 %.
    """

    value: float
    sd: float = math.nan
    n: int = 0
    interval: tuple[float, float] = (math.nan, math.nan)
    details: dict[str, Any] = field(default_factory=dict)
    reason: str = ""


Results = dict[str, dict[str, StudyResult]]  # by arm, or pair of arms, then by key


def mean_result(values: list[float], reason: str = "nobody answered") -> StudyResult:
    """Mean over participants."""
    summary = Summary.of(np.array(values, dtype=np.float64))
    return StudyResult(summary.mean, summary.sd, summary.n, summary.interval(), {}, "" if values else reason)


def item_mean(cells: list[list[ItemAnswer]], values: Sequence[Sequence[float]]) -> tuple[StudyResult, Estimate]:
    """Mean over participants of their mean over photos, with the interval over people and images."""
    cells, values = [cell for cell in cells if cell], [one for one in values if len(one)]
    result = mean_result([_mean(one) for one in values])
    people, images, given = flat(cells, values)
    mean = estimate(given, people, images)
    result.interval = mean.interval()
    return result, mean


def default_test(details: dict[str, Any]) -> dict[str, Any] | None:
    """The default test of a result; None if it has none."""
    return next((details[name] for name in ("clustered", "paired") if name in details), None)


def accuracy_results(name: TaskName, task: Task, people: list[Person]) -> dict[str, StudyResult]:
    """Accuracy and confidence, on right and on wrong predictions and on both.

    Returns:
        ``study/<task>_correct``, ``_incorrect`` and ``_total`` with the test over participants (as in HIVE), the test
        clustered by people and images (the default), and the implied person effect; ``…_confidence`` each.
    """
    results = {}
    for suffix, kinds in (("correct", {True}), ("incorrect", {False}), ("total", {True, False})):
        key = f"study/{name}_{suffix}"
        cells = [[one for one in person.items if one.key.right in kinds] for person in people]
        results[key] = accuracy(cells, [[one.right for one in cell] for cell in cells], task.chance)
        sure = [[one.number("confidence") for one in cell] for cell in cells]
        results[f"{key}_confidence"], _ = item_mean(cells, sure)
    return results


def accuracy(cells: list[list[ItemAnswer]], right: list[list[bool]], chance: float) -> StudyResult:
    """Mean accuracy over participants, tested against chance."""
    result, mean = item_mean(cells, right)
    summary = Summary(result.value, result.sd, result.n)
    answers = [one for cell in cells for one in cell]
    means = [_mean(one) for one in right if one]
    result.details = {
        "chance": chance,
        "images": len({one.key.image for one in answers}),
        "clustered": mean.test(chance),
        "detectable": mean.detectable(),
        "participants": summary.against(chance).test() | {"d": summary.effect(chance)},
        "person_effect": person_effect(summary, len(answers) / result.n) if result.n else math.nan,
    }
    if 0 < result.n < MAX_EXACT + 1:
        result.details["sign_flip_p"] = exact_sign_flip(np.array(means) - chance)
    return result


def difference(first: list[Person], second: list[Person], margin: float, same: bool) -> StudyResult:
    """Difference of the accuracies of two arms, its interval and tests over people and images, and equivalence.

    Of arms that the same people see, those who saw both are compared.

    Returns:
        ``clustered`` is the test over people and images. Next to it are tests over people only: ``paired``, or
        ``welch`` and ``pooled``, the t-test of HIVE.
    """
    if same:
        both = {one.participant.number for one in first} & {one.participant.number for one in second}
        first, second = ([one for one in arm if one.participant.number in both] for arm in (first, second))
    arms = [sorted(arm, key=lambda one: one.participant.number) for arm in (first, second)]
    cells = [person.items for arm in arms for person in arm]
    people, images, right = flat(cells, [[one.right for one in cell] for cell in cells])
    sides = np.repeat([1, -1], [sum(len(person.items) for person in arm) for arm in arms])
    means = [np.array([_mean([one.right for one in person.items]) for person in arm]) for arm in arms]
    if same:
        result = mean_result((means[0] - means[1]).tolist(), "nobody saw both arms")
        summary = Summary(result.value, result.sd, result.n)
        details: dict[str, Any] = {"paired": summary.against(0).test(), "d": summary.effect(0)}
    else:
        one, other = (Summary.of(some) for some in means)
        result = StudyResult(
            one.mean - other.mean, n=one.n + other.n, reason="" if one.n and other.n else "nobody answered"
        )
        details = {"welch": between(one, other).test(), "pooled": between(one, other, pooled=True).test()}
        details["hedges_g"] = hedges_g(one, other)
    gap = estimate(right, people, images, sides) if all(arms) else Estimate(math.nan, reason="an arm has no answers")
    result.interval = gap.interval()
    details |= {"detectable": gap.detectable(), "equivalence_p": gap.equivalence(margin), "margin": margin}
    result.details = {"clustered": gap.test(), **details}
    return result


def flat(
    cells: list[list[ItemAnswer]], values: Sequence[Sequence[float]]
) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """People, images and values of all answers."""
    answers = [one for cell in cells for one in cell]
    names = {image: index for index, image in enumerate(sorted({one.key.image for one in answers}))}
    people = np.array([one.person for one in answers], dtype=np.int64)
    images = np.array([names[one.key.image] for one in answers], dtype=np.int64)
    return people, images, np.array([value for cell in values for value in cell], dtype=np.float64)


def belief_results(people: list[Person]) -> dict[str, StudyResult]:
    """Sensitivity and criterion of agreement, and over-belief: how often wrong predictions are believed."""
    wrong = [[one for one in person.items if not one.key.right] for person in people]
    cells = [person.items for person in people]
    person, image, believed = flat(cells, [[one.chosen is not None for one in cell] for cell in cells])
    right = np.array([one.key.right for cell in cells for one in cell], dtype=bool)
    signal = detection(believed > 0, right, person, image)
    reason = "" if math.isfinite(signal.d_prime) else "there are no answers to right or none to wrong predictions"
    return {
        "study/over_belief": item_mean(wrong, [[one.chosen is not None for one in cell] for cell in wrong])[0],
        "study/d_prime": StudyResult(signal.d_prime, n=len(people), interval=signal.d_prime_interval, reason=reason),
        "study/criterion": StudyResult(
            signal.criterion, n=len(people), interval=signal.criterion_interval, reason=reason
        ),
    }


def output_results(people: list[Person]) -> dict[str, StudyResult]:
    """Accuracy of what people took for the model's output."""
    results = {}
    for suffix, kind in (("correct", True), ("incorrect", False)):
        cells = [[one for one in person.items if one.key.right == kind] for person in people]
        right = [[one.answers["output"] == one.key.output for one in cell] for cell in cells]
        results[f"study/output_{suffix}"] = accuracy(cells, right, 1 / OPTIONS)
        sure = [[one.number("output_confidence") for one in cell] for cell in cells]
        results[f"study/output_{suffix}_confidence"], _ = item_mean(cells, sure)
    return results


def confidence_results(task: Task, people: list[Person]) -> dict[str, StudyResult]:
    """Whether people who are surer are right more often.

    The distance of a belief from the middle of its scale is the confidence in it: 1 or 2.
    """
    answers = [one for person in people for one in person.items]
    levels = np.array([one.number("confidence") for one in answers])
    right = np.array([one.right for one in answers], dtype=bool)
    points = POINTS[task.scale]
    if task.scale == "belief":
        points = 2
        levels = np.where(np.isin(levels, [1, 4]), 2.0, 1.0)
    by_level = {str(int(level)): float(right[levels == level].mean()) for level in np.unique(levels)}
    values = {"gamma": gamma(levels, right), "brier": brier(levels, right, points, task.chance)}
    return {
        f"study/confidence_{name}": StudyResult(
            value,
            n=len(people),
            details={"accuracy_by_level": by_level},
            reason="" if math.isfinite(value) else "all answers are tied",
        )
        for name, value in values.items()
    }


def rating_results(arm: Arm, people: list[Person]) -> dict[str, StudyResult]:
    """Self-rated understanding, the trade-off, experience and time."""
    results = {}
    for name in ("understanding.intro", "understanding.task", "understanding.results", "experience"):
        results[f"study/{name.replace('.', '_')}"] = mean_result(_numbers(people, name))
    changes = [
        float(second) - float(first)
        for person in people
        if isinstance(first := person.pages.get("understanding.task"), int)
        and isinstance(second := person.pages.get("understanding.results"), int)
    ]
    change = mean_result(changes)
    test = Summary(change.value, change.sd, change.n).against(0)
    change.details = {"paired": test.test(), "detectable": test.detectable()}
    results["study/understanding_change"] = change
    results |= tradeoff_results(arm, people)
    minutes = [person.seconds / 60 for person in people if person.seconds is not None]
    results["study/minutes"] = mean_result(minutes)
    results["study/minutes"].details["median"] = float(np.median(minutes)) if minutes else math.nan
    return results


def tradeoff_results(arm: Arm, people: list[Person]) -> dict[str, StudyResult]:
    """How much more accurate another model has to be for people to prefer it, by what is at stake.

    Values are shares of photos above the accuracy of the model; ``details.headroom`` divides them by ``1 - accuracy``,
    because the demand follows the room there is. People who would not switch are counted apart.
    """
    results = {}
    for level in ("low", "medium", "high"):
        given = _numbers(people, f"tradeoff.{level}")
        demands = [(value - arm.accuracy) / 100 for value in given if value != NO_SWITCH]
        result = mean_result(demands)
        room = 1 - arm.accuracy / 100
        result.details = {
            "median": float(np.median(demands)) if demands else math.nan,
            "headroom": result.value / room if room > 0 else math.nan,
            "would_not_switch": given.count(NO_SWITCH),
        }
        results[f"study/tradeoff_{level}"] = result
    return results


def _numbers(people: list[Person], name: str) -> list[float]:
    values = (person.pages.get(name) for person in people)
    return [float(value) for value in values if isinstance(value, int | float)]


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
