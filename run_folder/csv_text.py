"""CSV tables that are safe to open in a spreadsheet: a name that starts like a formula stays text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

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
