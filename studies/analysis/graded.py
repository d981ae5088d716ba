"""Answers to photos, graded with the key, and the reasons to doubt a participant's answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from protometry.studies.bundle import Bundle
from protometry.studies.participants import Participant, Visit, steps_of
from protometry.studies.questions import Answer, Answers
from protometry.studies.study import Arm, Flag, Item, ItemKey

FASTEST = 0.1  # of the planned time; nobody reads faster


@dataclass(frozen=True)
class ItemAnswer:
    """What one participant answered to one photo.

    Attributes:
        item: as this participant saw it.
        chosen: the option that was believed or chosen, or the leaf of a tree.
    """

    person: int
    item: Item
    key: ItemKey
    answers: Answers
    right: bool
    chosen: str | None
    seconds: float | None

    def number(self, question: str) -> float:
        """An answer on a scale."""
        value = self.answers[question]
        assert isinstance(value, int)
        return float(value)


@dataclass
class Person:
    """A participant who finished, and what was answered in one arm.

    Attributes:
        items: answers to its photos that are scored, in order.
        checks: answers to its other photos.
        pages: all other answers on its pages, by question.
        seconds: over its pages; None where a clock was set back.
        flags: reasons to doubt the participant's answers, in whatever arm.
    """

    participant: Participant
    arm: str
    items: list[ItemAnswer] = field(default_factory=list)
    checks: list[ItemAnswer] = field(default_factory=list)
    pages: dict[str, Answer] = field(default_factory=dict)
    seconds: float | None = 0.0
    flags: list[Flag] = field(default_factory=list)


def grade(bundle: Bundle, people: list[Participant], visits: list[Visit]) -> list[Person]:
    """Grade all participants who finished.

    Returns:
        One entry per arm of every participant who completed the study, with the flags of the study's declared quality
        checks.
    """
    everyone: list[Person] = []
    for one in people:
        if one.status != "completed":
            continue
        way, own = steps_of(bundle.study, one), [visit for visit in visits if visit.number == one.number]
        in_arms = {name: Person(one, name) for name in one.arms}
        for visit in own:
            step = way[visit.step]
            person = in_arms[step.arm.id]
            if step.item is None:
                person.pages |= visit.answers
            else:
                answers = person.items if step.arm.is_scored(step.item) else person.checks
                answers.append(_graded(bundle, step.arm, step.item, visit))
            known = None not in (person.seconds, visit.seconds)
            person.seconds = (person.seconds or 0) + (visit.seconds or 0) if known else None
        doubts = flags(bundle, list(in_arms.values()), own)
        for person in in_arms.values():
            person.flags = doubts
        everyone += in_arms.values()
    return everyone


def _graded(bundle: Bundle, arm: Arm, item: Item, visit: Visit) -> ItemAnswer:
    key, answers, task = bundle.key.items[item.id], visit.answers, bundle.tasks[arm.id]
    right, chosen = task.is_right(item, key, answers), task.chosen(item, answers)
    return ItemAnswer(visit.number, item, key, answers, right, chosen, visit.seconds)


def failed_catches(check: ItemAnswer) -> int:
    """How many attention checks of an item were not answered as expected."""
    failed = sum(str(check.answers.get(name)) not in allowed for name, allowed in check.key.catch.items())
    return failed + (check.item.attention is not None and check.answers.get("attention") != check.item.attention)


def flags(bundle: Bundle, arms: list[Person], visits: list[Visit]) -> list[Flag]:
    """Reasons to doubt the answers of a participant; nothing is left out except by the rules of the study."""
    quality = bundle.study.quality
    items = [one for arm in arms for one in arm.items]
    ratings = [
        value
        for one in items
        for name, value in one.answers.items()
        if name == "confidence" or name.startswith("similarity.")
    ]
    times = [one.seconds for one in items if one.seconds is not None]
    passed = [visit.seconds for visit in visits if visit.seconds is not None]
    shortest = 60 * bundle.study.platform.minutes * FASTEST if quality.min_seconds else 0
    losses = [visit.client.get("focus_losses") for visit in visits if visit.item is not None]
    checks: dict[Flag, bool] = {
        "straight_line": len(ratings) > 2 and len(set(ratings)) == 1,
        "fast": bool(times) and (median(times) < quality.min_seconds or sum(passed) < shortest),
        "focus_lost": sum(loss for loss in losses if isinstance(loss, int)) > quality.max_focus_losses,
        "failed_catch": sum(failed_catches(one) for arm in arms for one in arm.checks) > quality.max_failed_catches,
        "pictures_missing": any(visit.client.get("pictures_missing") for visit in visits),
        "no_javascript": not all(visit.client.get("javascript") for visit in visits),
        "clock": any(visit.seconds is None for visit in visits),
    }
    return [name for name, flagged in checks.items() if flagged]
