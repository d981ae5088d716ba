"""Answers to photos, graded with the key, and what speaks for and against using those of a participant."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from studies.bundle import Bundle
from studies.flow import shown
from studies.grading import believed, chosen, failed_catches, is_right
from studies.participants import Participant, Visit
from studies.questions import Answer, Answers
from studies.study import Arm, Flag, Item, ItemKey


@dataclass(frozen=True)
class ItemAnswer:
    """What one participant answered to one photo.

    Attributes:
        person: number of the participant.
        item: as this participant saw it.
        key: of the item.
        answers: by question.
        right: whether it was answered rightly.
        believed: whether the prediction was believed; None but in agreement.
        chosen: option or leaf; None but in distinction.
        seconds: on the page.
    """

    person: int
    item: Item
    key: ItemKey
    answers: Answers
    right: bool
    believed: bool | None
    chosen: str | None
    seconds: float | None

    def number(self, question: str) -> float:
        """An answer on a scale."""
        value = self.answers[question]
        assert isinstance(value, int)
        return float(value)


@dataclass
class Person:
    """A participant who finished.

    Attributes:
        participant: row of the database.
        items: answers to photos, in order.
        pages: all other answers, by question.
        seconds: over all pages; None where a clock was set back.
        flags: what speaks against the answers.
    """

    participant: Participant
    items: list[ItemAnswer] = field(default_factory=list)
    pages: dict[str, Answer] = field(default_factory=dict)
    seconds: float | None = 0.0
    flags: list[Flag] = field(default_factory=list)


def grade(bundle: Bundle, people: list[Participant], visits: list[Visit]) -> list[Person]:
    """Grade all participants who finished.

    Args:
        bundle: of the study.
        people: of the database.
        visits: of the database.

    Returns:
        One entry per participant who completed the study, with the flags of the study's declared quality checks.
    """
    found = {person.number: Person(person) for person in people if person.status == "completed"}
    pages: dict[int, list[Visit]] = {number: [] for number in found}
    for visit in visits:
        if visit.number in found:
            pages[visit.number].append(visit)
    for number, person in found.items():
        arm = bundle.study.arm(person.participant.arm)
        items = {item.id: item for item in arm.items}
        for visit in pages[number]:
            if visit.item is None:
                person.pages |= visit.answers
            else:
                person.items.append(_graded(bundle, arm, person.participant, items[visit.item], visit))
        times = [visit.seconds for visit in pages[number]]
        person.seconds = None if None in times else sum(time for time in times if time is not None)
        person.flags = flags(bundle, person, pages[number])
    return list(found.values())


def _graded(bundle: Bundle, arm: Arm, person: Participant, item: Item, visit: Visit) -> ItemAnswer:
    key, answers = bundle.key.items[item.id], visit.answers
    agreement = bundle.study.task == "agreement"
    return ItemAnswer(
        person=person.number,
        item=shown(arm, item, person.seed),
        key=key,
        answers=answers,
        right=is_right(bundle.study, key, answers),
        believed=believed(answers) if agreement else None,
        chosen=None if agreement else chosen(answers),
        seconds=visit.seconds,
    )


def flags(bundle: Bundle, person: Person, visits: list[Visit]) -> list[Flag]:
    """What speaks against the answers of a participant; nothing is left out but by the rules of the study.

    Args:
        bundle: with the thresholds that were declared.
        person: whose answers to photos were graded.
        visits: all pages of the participant.
    """
    quality = bundle.study.quality
    ratings = [
        value
        for one in person.items
        for name, value in one.answers.items()
        if name == "confidence" or name.startswith("similarity.")
    ]
    times = [one.seconds for one in person.items if one.seconds is not None]
    losses = [visit.client.get("focus_losses") for visit in visits if visit.item is not None]
    checks: dict[Flag, bool] = {
        "straight_line": len(ratings) > 2 and len(set(ratings)) == 1,
        "fast": bool(times) and median(times) < quality.min_seconds,
        "focus_lost": sum(loss for loss in losses if isinstance(loss, int)) > quality.max_focus_losses,
        "failed_catch": sum(failed_catches(one.key, one.answers, one.item.attention) for one in person.items)
        > quality.max_failed_catches,
        "pictures_missing": any(visit.client.get("pictures_missing") for visit in visits),
        "no_javascript": not all(visit.client.get("javascript") for visit in visits),
        "clock": any(visit.seconds is None for visit in visits),
    }
    return [name for name, found in checks.items() if found]
