"""Typed records from JSON: every value is checked against its annotation, and errors say where it is."""

from __future__ import annotations

import json
from types import GenericAlias
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
T = TypeVar("T")


def read(kind: type[T], value: object, where: str) -> T:
    """Make a dataclass from JSON.

    Args:
        kind: an annotated dataclass, which may hold others.
        value: parsed JSON.
        where: its place, for errors.

    Returns:
        The record.

    Raises:
        ValueError: if a field is missing, unknown, or of another type; the first of them.

    Example:
        >>> from studies.study import Assignment
        >>> read(Assignment, {"people": "1", "right": 2, "wrong": 2}, "study.yaml")
        Traceback (most recent call last):
        ...
        ValueError: study.yaml.people: expected to be a valid integer, but got '1'.
    """
    listed: Any = GenericAlias(list, (kind,))  # a dataclass alone takes no settings
    try:
        records: list[T] = TypeAdapter(listed, config=STRICT).validate_json(json.dumps([value]))
        return records[0]
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"][1:])
        known = {"missing": "is missing", "unexpected_keyword_argument": "is not a known key"}
        said = known.get(first["type"], f"{first['msg']}, but got {first['input']!r:.80}")
        raise ValueError(f"{where}{place}: {said.replace('Input should be', 'expected to be')}.") from None
