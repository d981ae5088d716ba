"""The path of a participant through a study, page by page, and the questions on every page."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from protometry.studies.questions import Answers, Question, letters
from protometry.studies.study import Arm, Item, Study, UnitShown
from protometry.studies.tasks import task_of
from protometry.studies.texts import texts

Status = Literal["active", "completed", "screened", "declined", "withdrawn"]


@dataclass(frozen=True)
class Page:
    """One page of a participant.

    Attributes:
        page: its name, part of the names of its answers; ``item`` for a photo.
        arm: that it belongs to; the first one for pages before any.
        item: as this participant sees it: options and rows in an order of their own.
        number: of the photo, or of the warm-up card, from 1.
    """

    page: str
    arm: Arm
    questions: list[Question]
    item: Item | None = None
    number: int = 0


def steps(study: Study, arms: Sequence[str], items: Sequence[str], seed: str) -> list[Page]:
    """All pages of a participant.

    Returns:
        Pages from consent to comments, those about a method once for every arm; the second try of the quiz is among
        them and is skipped by :func:`after`.
    """
    number = 0
    shown_arms = [study.arm(name) for name in arms]
    way = [_page(study, page, shown_arms[0]) for page in ("consent", "background")]
    first_tree = next((arm for arm in shown_arms if arm.form == "tree"), None)
    for index, arm in enumerate(shown_arms):
        cards = len(texts(study.language)["warm_up"]["cards"]) if arm is first_tree else 0
        pages = [*(f"warm_up.{card}" for card in range(cards)), "method", "preview"]
        pages += ["quiz", "quiz_again"] if study.pages.quiz and index == 0 else []
        way += [_page(study, page, arm) for page in [*pages, "understanding.intro"]]
        known = {item.id: item for item in (*arm.items, *arm.checks)}
        for name in filter(known.__contains__, items):
            number, item = number + 1, in_random_order(arm, known[name], seed)
            way.append(Page("item", arm, item_questions(study, arm, item), item, number))
        pages = ["understanding.task", "result"]
        pages += ["tradeoff"] if study.pages.tradeoff and arm.form != "none" else []  # for an explanation
        way += [_page(study, page, arm) for page in pages]
    return [*way, *([_page(study, "comments", shown_arms[-1])] if study.pages.comments else [])]


def _page(study: Study, page: str, arm: Arm) -> Page:
    number = int(page.removeprefix("warm_up.")) + 1 if page.startswith("warm_up.") else 0
    return Page(page, arm, page_questions(study, page, arm), number=number)


def in_random_order(arm: Arm, item: Item, seed: str) -> Item:
    """An item as a participant sees it: options in a random order, rows too unless they are the path of a tree."""
    generator = random.Random(f"{seed} {item.id}")
    options = generator.sample(item.options, len(item.options))
    if arm.form == "units":
        options = [replace(option, rows=generator.sample(option.rows, len(option.rows))) for option in options]
    return replace(item, options=options)


def after(study: Study, way: list[Page], index: int, answers: Answers) -> tuple[int, Status]:
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


def item_questions(study: Study, arm: Arm, item: Item) -> list[Question]:
    """The questions about an item, in the order of the page.

    Rows are asked as ``similarity.<row>`` and ``clarity.<row>``, pairs of them as ``pair.<row>.<row>``, options as
    ``answer`` and ``output``, the last nodes of a tree as ``decision.0`` to ``decision.2``, and the belief in a single
    prediction as ``confidence``.
    """
    say, task = texts(study.language), task_of(study.task, arm.form)
    names = _row_names(say, arm, item)
    rows = [row for option in item.options for row in option.rows]
    questions = []
    if arm.rating == "rows" and not item.decisions:
        if arm.similarity == "pairwise":
            questions += [pair for option in item.options for pair in _pairs(say, option.rows, names)]
        else:
            scale = "similarity" if arm.similarity == "scale" else "alike"
            questions += [replace(_scale(say, f"similarity.{row.id}", scale), about=names[row.id]) for row in rows]
        if arm.clarity:
            questions += [replace(_scale(say, f"clarity.{row.id}", "clarity"), about=names[row.id]) for row in rows]
    if arm.rating == "first_disagreement":
        questions.append(_disagreement(say, rows))
    choices = tuple((option.id, letter) for option, letter in zip(item.options, letters(say), strict=False))
    questions += [*task.questions(item, choices, say), _scale(say, "confidence", task.scale)]
    if study.pages.output and task.options > 1:
        questions.append(Question("output", "choice", say["questions"]["output"], choices))
        questions.append(_scale(say, "output_confidence", "confidence", say["questions"]["output_confidence"]))
    if item.attention is not None:
        wanted = say["scales"][task.scale][item.attention - 1]
        questions.append(_scale(say, "attention", task.scale, say["questions"]["attention"].format(answer=wanted)))
    return questions


def page_questions(study: Study, page: str, arm: Arm) -> list[Question]:
    """The questions on a page without a photo."""
    say = texts(study.language)
    ask = say["questions"]
    if page == "consent":
        return [Question("consent", "choice", ask["consent"], tuple(say["consent"].items()))]
    if page == "background":
        about = [_listed(name, ask[name], say["demographics"][name], required=False) for name in ("gender", "age")]
        return [*(about if study.pages.demographics else []), _scale(say, "experience", "experience")]
    if page.startswith("warm_up"):
        number = int(page.removeprefix("warm_up."))
        card = say["warm_up"]["cards"][number]
        return [_listed(page, card["text"], card["options"])]
    if page.startswith("quiz"):
        quiz = say["quiz"][study.task]
        return [_listed(f"{page}.{number}", one["text"], one["options"]) for number, one in enumerate(quiz)]
    if page.startswith("understanding") or page == "result":
        name = "understanding.results" if page == "result" else page
        return [_scale(say, name, "understanding")]
    if page == "tradeoff":
        levels = say["tradeoff"]["levels"].items()
        detail = say["tradeoff"]["detail"].format(accuracy=f"{arm.accuracy:g}")
        asked = [Question(f"tradeoff.{level}", "accuracy", text, detail=detail) for level, text in levels]
        return [*asked, Question("reason", "text", ask["reason"], required=False)]
    if page == "comments":
        return [Question("comments", "text", ask["comments"], required=False)]
    return []


def expected(study: Study, page: str) -> Answers:
    """The right answers of a quiz or a warm-up card."""
    say = texts(study.language)
    if page.startswith("quiz"):
        return {f"{page}.{number}": str(one["answer"]) for number, one in enumerate(say["quiz"][study.task])}
    return {page: str(say["warm_up"]["cards"][int(page.removeprefix("warm_up."))]["answer"])}


def _scale(say: dict[str, Any], name: str, scale: str, text: str | None = None) -> Question:
    points = tuple((str(number), anchor) for number, anchor in enumerate(say["scales"][scale], 1))
    return Question(name, "scale", say["questions"][scale] if text is None else text, points)


def _row_names(say: dict[str, Any], arm: Arm, item: Item) -> dict[str, str]:
    """What the rows of an item are called in messages."""
    name = "node" if arm.form == "tree" else "row" if len(item.options) == 1 else "row_of"
    return {
        row.id: say["items"][name].format(option=letter, number=number)
        for option, letter in zip(item.options, letters(say), strict=False)
        for number, row in enumerate(option.rows, 1)
    }


def _listed(name: str, text: str, options: list[str], required: bool = True) -> Question:
    return Question(name, "choice", text, tuple((str(number), one) for number, one in enumerate(options)), required)


def _pairs(say: dict[str, Any], rows: list[UnitShown], row_names: dict[str, str]) -> list[Question]:
    """The first row against the second, the third against the fourth, and so on."""
    numbered = [(row.id, say["items"]["row"].format(number=number)) for number, row in enumerate(rows, 1)]
    pairs = zip(numbered[::2], numbered[1::2], strict=False)
    text = say["questions"]["pair"]
    return [
        Question(f"pair.{one[0]}.{other[0]}", "choice", text, (one, other), about=f"{row_names[one[0]]} – {other[1]}")
        for one, other in pairs
    ]


def _disagreement(say: dict[str, Any], rows: list[UnitShown]) -> Question:
    nodes = [(row.id, say["items"]["node"].format(number=number)) for number, row in enumerate(rows, 1)]
    none = ("-none", say["questions"]["disagreement_none"])  # no row may be called so
    return Question("disagreement", "choice", say["questions"]["disagreement"], (*nodes, none))
