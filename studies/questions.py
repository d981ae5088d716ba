"""The questions of every page, and answers read from what a browser sends."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from studies.study import Arm, Item, Row, Study
from studies.texts import texts

MAX_TEXT = 2000  # characters
BELIEF, SIMILARITY, SURE = 4, 4, 5  # points of the scales
BELIEVED = 3  # from this point of the scale on, a prediction counts as believed
NUMBER = re.compile(r"[0-9]{1,3}([.,][0-9]{1,2})?")

Answer = int | float | str | list[str] | None
Answers = dict[str, Answer]


@dataclass(frozen=True)
class Question:
    """One question.

    Attributes:
        name: of the field, and of the answer in the results.
        kind: ``scale`` is answered by its point, from 1; ``choice`` by the value of an option; ``accuracy`` by a number
            of percent or the tick "would not switch", which is the answer -1.
        text: what is asked.
        options: value and text of each answer.
        required: whether the page can be left without it.
        detail: text below the question.
    """

    name: str
    kind: Literal["scale", "choice", "accuracy", "text"]
    text: str
    options: tuple[tuple[str, str], ...] = ()
    required: bool = True
    detail: str = ""


NO_SWITCH = -1


def item_questions(study: Study, arm: Arm, item: Item) -> list[Question]:
    """What is asked about an item, in the order of the page.

    Rows are asked as ``similarity.<row>`` and ``clarity.<row>``, pairs of them as ``pair.<row>.<row>``, options as
    ``answer`` and ``output``, the last nodes of a tree as ``decision.0`` to ``decision.2``, and the belief in a single
    prediction as ``confidence``.
    """
    say = texts(study.language)
    rows = [row for option in item.options for row in option.rows]
    found = []
    if arm.rating == "rows" and not item.decisions:
        if arm.similarity == "pairwise":
            found += [pair for option in item.options for pair in _pairs(say, option.rows)]
        else:
            scale = "similarity" if arm.similarity == "scale" else "alike"
            found += [_scale(say, f"similarity.{row.id}", scale) for row in rows]
        if arm.clarity:
            found += [_scale(say, f"clarity.{row.id}", "clarity") for row in rows]
    if arm.rating == "first_disagreement":
        found.append(_disagreement(say, rows))
    choices = tuple((option.id, letter) for option, letter in zip(item.options, letters(say), strict=False))
    if item.decisions:
        present = tuple((name, say["items"][name]) for name in ("absent", "present"))
        found += [
            Question(f"decision.{number}", "choice", say["questions"]["decision"], present)
            for number in range(len(item.decisions))
        ]
    elif study.task == "distinction":
        found.append(Question("answer", "choice", say["questions"]["answer"], choices))
    scale = "belief" if study.task == "agreement" else "confidence"
    found.append(_scale(say, "confidence", scale, say["questions"][scale]))
    if study.pages.output and not item.decisions:
        found.append(Question("output", "choice", say["questions"]["output"], choices))
        found.append(_scale(say, "output_confidence", "confidence", say["questions"]["output_confidence"]))
    if item.attention is not None:
        wanted = say["scales"][scale][item.attention - 1]
        found.append(_scale(say, "attention", scale, say["questions"]["attention"].format(answer=wanted)))
    return found


def page_questions(study: Study, page: str) -> list[Question]:
    """What is asked on a page without a photo.

    Args:
        study: whose questions.
        page: such as ``consent``, ``quiz`` or ``understanding.intro``.
    """
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
        unit = say["tradeoff"]["unit"]
        asked = [Question(f"tradeoff.{level}", "accuracy", text, detail=unit) for level, text in levels]
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


def letters(say: dict[str, Any]) -> list[str]:
    """Names of the options of an item."""
    return [say["items"]["option"].format(letter=letter) for letter in "ABCD"]


def read_answers(
    questions: list[Question], fields: Iterable[tuple[str, str]], language: str
) -> tuple[Answers, dict[str, str]]:
    """Read what a browser sent.

    Args:
        questions: of the page.
        fields: names and values, in the order sent; those that are no answers are already taken out.
        language: of the messages.

    Returns:
        Answers by name, None where an optional one was not given, and messages by name where something is wrong.
    """
    say, errors = texts(language)["errors"], {}
    sent: dict[str, list[str]] = defaultdict(list)
    for name, value in fields:
        sent[name].append(value)
    answers: Answers = {}
    for question in questions:
        tick = sent.pop(f"{question.name}.none", []) if question.kind == "accuracy" else []
        values = sent.pop(question.name, [])
        if max(len(values), len(tick)) > 1:
            errors[question.name] = say["repeated"]
            continue
        value = values[0].strip() if values else ""
        answers[question.name], error = _read_one(question, value, tick)
        if error:
            errors[question.name] = say[error]
    for name in sent:
        errors[name] = say["extra"].format(name=name[:80])
    return answers, errors


def _read_one(question: Question, value: str, tick: list[str]) -> tuple[Answer, str]:
    if question.kind == "accuracy":
        if tick:
            return NO_SWITCH, "" if not value and tick == ["yes"] else "number"
        number = float(value.replace(",", ".")) if NUMBER.fullmatch(value) else math.nan
        return (number, "") if 0 <= number <= 100 else (None, "missing" if not value else "number")
    if not value:
        return None, "missing" if question.required else ""
    if question.kind == "text":
        return value, "long" if len(value) > MAX_TEXT else ""
    if value not in dict(question.options):
        return None, "unknown"
    return int(value) if question.kind == "scale" else value, ""


def _scale(say: dict[str, Any], name: str, scale: str, text: str | None = None) -> Question:
    points = tuple((str(number), anchor) for number, anchor in enumerate(say["scales"][scale], 1))
    return Question(name, "scale", say["questions"][scale] if text is None else text, points)


def _listed(name: str, text: str, options: list[str], required: bool = True) -> Question:
    return Question(name, "choice", text, tuple((str(number), one) for number, one in enumerate(options)), required)


def _pairs(say: dict[str, Any], rows: list[Row]) -> list[Question]:
    """The first row against the second, the third against the fourth, and so on."""
    names = [(row.id, say["items"]["row"].format(number=number)) for number, row in enumerate(rows, 1)]
    pairs = zip(names[::2], names[1::2], strict=False)
    return [
        Question(f"pair.{one[0]}.{other[0]}", "choice", say["questions"]["pair"], (one, other)) for one, other in pairs
    ]


def _disagreement(say: dict[str, Any], rows: list[Row]) -> Question:
    nodes = [(row.id, say["items"]["node"].format(number=number)) for number, row in enumerate(rows, 1)]
    none = ("-none", say["questions"]["disagreement_none"])  # no row may be called so
    return Question("disagreement", "choice", say["questions"]["disagreement"], (*nodes, none))
