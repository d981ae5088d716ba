"""The way of a participant through a study, page by page."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Literal

from studies.questions import Answers, Question, expected, item_questions, page_questions
from studies.study import Arm, Item, Study
from studies.texts import texts

Status = Literal["active", "completed", "screened", "declined", "withdrawn"]


@dataclass(frozen=True)
class Step:
    """One page of a participant.

    Attributes:
        page: its name, part of the names of its answers; ``item`` for a photo.
        arm: that it belongs to; the first one for pages before any.
        questions: in their order.
        item: as this participant sees it: options and rows in an order of their own.
        number: of the photo, or of the warm-up card, from 1.
    """

    page: str
    arm: Arm
    questions: list[Question]
    item: Item | None = None
    number: int = 0


def steps(study: Study, arms: list[str], items: list[str], seed: str) -> list[Step]:
    """All pages of a participant.

    Returns:
        Pages from consent to comments, those about a method once for every arm; the second try of the quiz is among
        them and is skipped by :func:`after`.
    """
    number = 0
    shown_arms = [study.arm(name) for name in arms]
    found = [_page(study, page, shown_arms[0]) for page in ("consent", "background")]
    first_tree = next((arm for arm in shown_arms if arm.form == "tree"), None)
    for place, arm in enumerate(shown_arms):
        cards = len(texts(study.language)["warm_up"]["cards"]) if arm is first_tree else 0
        pages = [*(f"warm_up.{card}" for card in range(cards)), "method", "preview"]
        pages += ["quiz", "quiz_again"] if study.pages.quiz and place == 0 else []
        found += [_page(study, page, arm) for page in [*pages, "understanding.intro"]]
        known = {item.id: item for item in arm.items}
        for name in filter(known.__contains__, items):
            number, item = number + 1, shown(arm, known[name], seed)
            found.append(Step("item", arm, item_questions(study, arm, item), item, number))
        pages = ["understanding.task", "result"]
        pages += ["tradeoff"] if study.pages.tradeoff and arm.form != "none" else []  # for an explanation
        found += [_page(study, page, arm) for page in pages]
    return [*found, *([_page(study, "comments", shown_arms[-1])] if study.pages.comments else [])]


def _page(study: Study, page: str, arm: Arm) -> Step:
    number = int(page.removeprefix("warm_up.")) + 1 if page.startswith("warm_up.") else 0
    return Step(page, arm, page_questions(study, page), number=number)


def shown(arm: Arm, item: Item, seed: str) -> Item:
    """An item as a participant sees it: options in a random order, rows too unless they are the path of a tree."""
    generator = random.Random(f"{seed} {item.id}")
    options = generator.sample(item.options, len(item.options))
    if arm.form == "units":
        options = [replace(option, rows=generator.sample(option.rows, len(option.rows))) for option in options]
    return replace(item, options=options)


def after(study: Study, way: list[Step], index: int, answers: Answers) -> tuple[int, Status]:
    """Where an answered page leads.

    Returns:
        Index of the next page, and the participant's status: without consent and after two failed quizzes it ends.
    """
    page = way[index].page
    if page == "consent" and answers["consent"] != "agree":
        return index, "declined"
    following = index + 1
    if page.startswith("quiz"):
        passed = answers == expected(study, page)
        if page == "quiz_again" and not passed:
            return index, "screened"
        following += page == "quiz" and passed
    return following, "completed" if following == len(way) else "active"
