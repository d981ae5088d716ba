"""CSV tables that are safe to open in a spreadsheet: a name that starts like a formula stays text."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would run text that starts with these


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    r"""Rows as text.

    Args:
        rows: of cells; None is an empty cell.

    Example:
        >>> csv_text([["class", "share"], ["=1+1", -0.5]])
        "class,share\n'=1+1,-0.5\n"
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([[_guarded(cell) for cell in row] for row in rows])
    return text.getvalue()


def _guarded(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and cell.lstrip("'").startswith(FORMULA) else cell


def unguarded(name: str) -> str:
    """The original of a name written by :func:`csv_text`.

    Example:
        >>> unguarded("'=1+1"), unguarded("'quoted'")
        ('=1+1', "'quoted'")
    """
    return name[1:] if name.startswith("'") and name.lstrip("'").startswith(FORMULA) else name


def whole_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a table that is appended to during a training, by the names of its columns.

    A last line without its end is still being written, or was cut off by a crash. Other lines that a full disk or a
    crash has damaged are left out with a warning.

    Args:
        path: with whole numbers in ``step``, if it has such a column; no rows if there is no such file.
    """
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8", errors="replace")
    read = list(csv.DictReader(line for line in text.splitlines(keepends=True) if line.endswith("\n")))
    rows = [row for row in read if None not in (*row, *row.values()) and row.get("step", "0").isdigit()]
    if damaged := len(read) - len(rows):
        warnings.warn(
            f"{damaged} of {len(read)} rows of {path} do not fit its header and are left out. A full disk or a crash "
            "has damaged them.",
            stacklevel=2,
        )
    return rows
