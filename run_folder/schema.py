"""Schemas for the content of files and checkpoints; errors take one line and name the file and its keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from protometry.run_folder.command_line.user_path import regular

SHOWN = 3  # mistakes of a line


class Record(BaseModel):
    """The base of schemas: types are exact, numbers finite, and unknown keys may hold anything."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False, arbitrary_types_allowed=True)


def check_content(schema: Any, content: Any, source: str | Path, remedy: str) -> Any:
    """Refuse content that does not satisfy a schema.

    Args:
        schema: a :class:`Record`, or another type.
        content: plain data.
        source: its origin, for the error.
        remedy: what to do, a sentence.

    Returns:
        The content as the schema has it.

    Raises:
        ValueError: with the missing or wrong keys.

    Example:
        >>> check_content(dict[str, int], {"a": "x"}, "a.json", "Remove it.")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        ValueError: Expected a.json to have valid content, but `a`: input should be a valid integer, got 'x'. ...
    """
    try:
        return TypeAdapter(schema).validate_python(content, strict=True)
    except ValidationError as error:
        problems = [_described(each) for each in error.errors(include_url=False)]
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise ValueError(
            f"Expected {source} to have valid content, but {'; '.join(problems[:SHOWN])}{more}. {remedy}"
        ) from None


def _described(error: Any) -> str:
    place, said = ".".join(map(str, error["loc"])), error["msg"][:1].lower() + error["msg"][1:]
    if error["type"] == "missing":
        return f"it lacks `{place}`"
    if error["type"] == "value_error":  # of a check of ours, which says what it got
        return str(error["ctx"]["error"])
    return f"{f'`{place}`: ' if place else ''}{said}, got {error['input']!r:.60}"


def read_json(file: Path, remedy: str, most: int | None = None) -> Any:
    """The content of a file of strict JSON, which has neither NaN nor infinity and every key once.

    Args:
        file: a regular file.
        remedy: what to do if it is damaged, a sentence.
        most: bytes of the file; any number by default.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not strict JSON, or larger.
    """
    try:
        if most is not None and (size := regular(file).stat().st_size) > most:
            raise ValueError(f"its {size:,} bytes are more than {most:,}")
        text = regular(file).read_text(encoding="utf-8-sig")
        content = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_refuse_repeated)
        if "\\u" in text:
            json.dumps(content, ensure_ascii=False).encode()  # refuses one half of a surrogate pair
        return content
    except (ValueError, RecursionError) as error:
        raise ValueError(f"Expected {file} to hold strict JSON, but {error}. {remedy}") from error


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} appears twice")
    return content


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
