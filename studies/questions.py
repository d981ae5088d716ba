"""Questions, and what a browser sends: forms, and the answers read from them."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from protometry.studies.texts import texts

MAX_TEXT = 2000  # characters
POINTS = {"belief": 4, "similarity": 4, "alike": 2, "confidence": 5}  # of some scales
CLIENT = ("seconds", "focus_losses", "helps", "javascript", "pictures_missing")
COUNT = re.compile(r"[0-9]{1,9}")
NUMBER = re.compile(r"([0-9]{1,3}(?:[.,][0-9]{1,2})?) ?%?")

Answer = int | float | str | list[str] | None
Answers = dict[str, Answer]


@dataclass(frozen=True)
class Question:
    """One question.

    Attributes:
        kind: ``scale`` is answered by its point, from 1; ``choice`` by the value of an option; ``accuracy`` by a number
            of percent or the tick "would not switch", which is the answer -1.
        detail: text below the question, before the field of ``accuracy``.
        about: what it asks about, where a page repeats a question, such as for each row of a class.
    """

    name: str
    kind: Literal["scale", "choice", "accuracy", "text"]
    text: str
    options: tuple[tuple[str, str], ...] = ()
    required: bool = True
    detail: str = ""
    about: str = ""


NO_SWITCH = -1


@dataclass(frozen=True)
class Form:
    """A form that was sent.

    Attributes:
        step: index of the page it is the form of; -1 if it does not say.
        client: what the browser claims of the visit; counts, and None for what is not a count.
    """

    step: int
    token: str
    client: dict[str, object]
    answers: list[tuple[str, str]]


def form_of(fields: list[tuple[str, str]]) -> Form:
    """A form from its fields, in the order sent."""
    own = {name: value for name, value in reversed(fields) if name in ("step", "token", *CLIENT)}
    client: dict[str, object] = {name: _count(own.get(name, "")) for name in CLIENT}
    client |= {name: bool(client[name]) for name in ("javascript", "pictures_missing")}
    answers = [(name, value) for name, value in fields if name not in own]
    step = _count(own.get("step", ""))
    return Form(-1 if step is None else step, own.get("token", ""), client, answers)


def letters(say: dict[str, Any]) -> list[str]:
    """Names of the options of an item."""
    return [say["items"]["option"].format(letter=letter) for letter in "ABCD"]


def read_answers(
    questions: list[Question], fields: Iterable[tuple[str, str]], language: str
) -> tuple[Answers, dict[str, str]]:
    """Read what a browser sent.

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
        read = NUMBER.fullmatch(value)
        number = float(read[1].replace(",", ".")) if read else math.nan
        return (number, "") if 0 <= number <= 100 else (None, "missing" if not value else "number")
    if not value:
        return None, "missing" if question.required else ""
    if question.kind == "text":
        return value, "long" if len(value) > MAX_TEXT else ""
    if value not in dict(question.options):
        return None, "unknown"
    return int(value) if question.kind == "scale" else value, ""


def _count(value: str) -> int | None:
    return int(value) if COUNT.fullmatch(value) else None
