"""A page that was sent or saved, before its answers are looked at."""

from __future__ import annotations

import re
from dataclasses import dataclass

CLIENT = ("seconds", "focus_losses", "helps", "javascript", "pictures_missing")
COUNT = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class Form:
    """A form that was sent.

    Attributes:
        step: index of the page it is the form of; -1 if it does not say.
        token: that the page held.
        client: what the browser claims of the visit; counts, and None for what is not a count.
        answers: names and values of all other fields, in order.
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


def _count(value: str) -> int | None:
    return int(value) if COUNT.fullmatch(value) else None
