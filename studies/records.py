"""Typed records from JSON: every value is checked against its annotation, and errors say where it is."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from types import GenericAlias
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance  # known to type checkers only
    from pydantic_core import ErrorDetails

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
        >>> from protometry.studies.study import Assignment
        >>> read(Assignment, {"people": "1", "right": 2, "wrong": 2}, "study.yaml")
        Traceback (most recent call last):
        ...
        ValueError: study.yaml.people: expected to be a valid integer, but got '1'.
    """
    try:
        return _read(kind, value)
    except ValidationError as error:
        first = error.errors()[0]
        known = {"missing": "is missing", "unexpected_keyword_argument": "is not a known key"}
        said = known.get(first["type"], f"{first['msg']}, but got {first['input']!r:.80}")
        raise ValueError(f"{where}{_place(first)}: {said.replace('Input should be', 'expected to be')}.") from None


def check_arguments(record: DataclassInstance) -> None:
    """Refuse a dataclass that was made from arguments and could not be read back from JSON.

    Raises:
        ValueError: for the first value that its annotation does not allow.

    Example:
        >>> from protometry.studies.study import Assignment
        >>> check_arguments(Assignment(people=4, right=2, wrong=-2))
        Traceback (most recent call last):
        ...
        ValueError: Expected argument `wrong` to be at least 0, but got -2.
    """
    try:
        _read(type(record), asdict(record))
    except ValidationError as error:
        first = error.errors()[0]
        bound = re.sub(r"^\w+ should ", "", first["msg"]).replace("greater than or equal to", "at least")
        name = _place(first).removeprefix(".")
        raise ValueError(f"Expected argument `{name}` to {bound}, but got {first['input']!r:.80}.") from None


def _read(kind: type[T], value: object) -> T:
    listed: Any = GenericAlias(list, (kind,))  # a dataclass alone takes no settings
    records: list[T] = TypeAdapter(listed, config=STRICT).validate_json(json.dumps([value]))
    return records[0]


def _place(error: ErrorDetails) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"][1:])
