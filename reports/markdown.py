"""Numbers and tables as text that reads well in a terminal and renders as GitHub-flavoured Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence

UNDEFINED = "undefined"


def number(value: float | None, unit: str = "") -> str:
    """A value as printed: percent for fractions, with two decimals; more for what would vanish, or below 1 otherwise.

    Args:
        value: None or NaN where undefined.
        unit: of the value; ``"fraction"`` is multiplied by 100.

    Returns:
        The text, without a unit.

    Example:
        >>> number(0.70184, "fraction"), number(2000.0, "count"), number(0.3), number(2e-6), number(None)
        ('70.18', '2000.00', '0.30', '2e-06', 'undefined')
    """
    if value is None or math.isnan(value):
        return UNDEFINED
    scaled = 100 * value if unit == "fraction" else value
    plain, enough = f"{scaled:.2f}", 0.01 if unit == "fraction" else 1
    return plain if abs(scaled) >= enough else max(plain, f"{scaled:.4g}", key=len)


def interval(low: float | None, high: float | None, unit: str = "") -> str:
    """The bounds of an interval.

    Args:
        low: lower bound, None or NaN where undefined.
        high: upper bound.
        unit: as for :func:`number`.

    Returns:
        The text, empty if a bound is undefined.

    Example:
        >>> interval(0.5, 0.625, "fraction"), interval(None, None)
        ('[50.00, 62.50]', '')
    """
    texts = number(low, unit), number(high, unit)
    return "" if UNDEFINED in texts else f"[{texts[0]}, {texts[1]}]"


def printed_unit(unit: str) -> str:
    """The unit as printed: a fraction becomes percent.

    Example:
        >>> printed_unit("fraction"), printed_unit("bits")
        ('%', 'bits')
    """
    return "%" if unit == "fraction" else unit


def lines(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """An aligned table.

    Args:
        header: column names.
        rows: as many cells each as there are columns.
        left: number of leading columns that are left-aligned; the others are right-aligned.

    Returns:
        Lines of one length.

    Example:
        >>> print(chr(10).join(lines(["metric", "value"], [["f1 ↑", "70.18"], ["npr ↓", "2.1"]])))
        | metric | value |
        |:-------|------:|
        | f1 ↑   | 70.18 |
        | npr ↓  |   2.1 |
    """
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in (header, *rows)]
    widths = [max(3, *(len(cell) for cell in column)) for column in zip(*escaped, strict=True)]
    rule = [":" + "-" * (width + 1) if index < left else "-" * (width + 1) + ":" for index, width in enumerate(widths)]
    body = [
        " | ".join(
            cell.ljust(width) if index < left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in escaped
    ]
    return [f"| {body[0]} |", f"|{'|'.join(rule)}|", *(f"| {row} |" for row in body[1:])]
