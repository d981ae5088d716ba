"""Typed records from JSON: every value is checked against its annotation, and errors say where it is."""

from __future__ import annotations

import json
import re
from types import GenericAlias
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
SAID = {"missing": "is missing", "unexpected_keyword_argument": "is not a known key"}
T = TypeVar("T")


def read(kind: type[T], value: object, where: str) -> T:
    """Make an annotated dataclass, which may hold others, from parsed JSON.

    Raises:
        ValueError: if a field is missing, unknown, or of another type; the first of them.

    Example:
        >>> from protometry.studies.study import Assignment
        >>> read(Assignment, {"people": 1, "right": -2, "wrong": 2}, "study.yaml")
        Traceback (most recent call last):
        ...
        ValueError: Expected `right` of study.yaml to be at least 0, but got -2.
    """
    listed: Any = GenericAlias(list, (kind,))  # a dataclass alone takes no settings
    try:
        records: list[T] = TypeAdapter(listed, config=STRICT).validate_json(json.dumps([value]))
    except ValidationError as error:
        first = error.errors()[0]
        parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"][1:]]
        field = f"`{''.join(parts).removeprefix('.')}` of {where}" if parts else where
        if first["type"] in SAID:
            raise ValueError(f"{field} {SAID[first['type']]}.") from None
        bound = re.sub(r"^\w+ should ", "", first["msg"]).replace("greater than or equal to", "at least")
        raise ValueError(f"Expected {field} to {bound}, but got {first['input']!r:.80}.") from None
    return records[0]
