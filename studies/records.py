"""Typed records from JSON: every value is checked against its annotation, and errors say where it stands."""

from __future__ import annotations

import dataclasses
import math
import types
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def read(kind: type[T], value: object, where: str) -> T:
    """Make a dataclass from JSON.

    Args:
        kind: a dataclass whose fields are annotated with str, int, float, bool, ``Literal``, ``X | None``, lists,
            dictionaries with keys of type str, and such dataclasses.
        value: parsed JSON.
        where: where it stands, for errors.

    Returns:
        The record.

    Raises:
        ValueError: if a field is missing, unknown, or of another type.

    Example:
        >>> @dataclasses.dataclass
        ... class Point:
        ...     x: float
        >>> read(Point, {"x": "1"}, "points.json")
        Traceback (most recent call last):
        ...
        ValueError: points.json.x: expected a number, but got '1'.
    """
    record: T = _read(kind, value, where)
    return record


def _read(kind: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, value, where)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return value if type(value) is str and value in arguments else _wrong(where, f"one of {arguments}", value)
    if origin in (types.UnionType, Union):
        return None if value is None else _read(arguments[0], value, where)
    if origin is list:
        if not isinstance(value, list):
            return _wrong(where, "a list", value)
        return [_read(arguments[0], entry, f"{where}[{index}]") for index, entry in enumerate(value)]
    if origin is dict:
        if not isinstance(value, dict):
            return _wrong(where, "an object", value)
        return {name: _read(arguments[1], entry, f"{where}.{name}") for name, entry in value.items()}
    if kind is float:
        number = type(value) in (int, float) and math.isfinite(value)
        return float(value) if number else _wrong(where, "a number", value)
    names = {str: "a text", int: "a whole number", bool: "true or false"}
    return value if type(value) is kind else _wrong(where, names[kind], value)


def _dataclass(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        return _wrong(where, "an object", value)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if unknown := sorted(set(value) - set(fields)):
        raise ValueError(f"{where}: unknown keys {unknown}; known are {sorted(fields)}.")
    hints = get_type_hints(kind)
    given = {name: _read(hints[name], entry, f"{where}.{name}") for name, entry in value.items()}
    for name, field in fields.items():
        if name not in given and field.default is field.default_factory is dataclasses.MISSING:
            raise ValueError(f"{where}: the key `{name}` is missing.")
    return kind(**given)


def _wrong(where: str, expected: str, value: object) -> Any:
    raise ValueError(f"{where}: expected {expected}, but got {value!r:.80}.")
