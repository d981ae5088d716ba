"""Numbers and tables as text that reads well in a terminal and renders as GitHub-flavoured Markdown."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

ROUNDING = 1e-12  # smaller values are 0
UNDEFINED = "undefined"


def number(value: float | None, unit: str = "") -> str:
    """A value as printed: percent for fractions, with two decimals; more for what would vanish, or below 1 otherwise.

    Example:
        >>> number(0.70184, "fraction"), number(2000.0, "count"), number(0.3), number(2e-6), number(None)
        ('70.18', '2000.00', '0.30', '2e-06', 'undefined')
    """
    if value is None or math.isnan(value):
        return UNDEFINED
    value = 0.0 if abs(value) < ROUNDING else value
    scaled = 100 * value if unit == "fraction" else value
    plain = f"{scaled:.2f}"
    return max(plain, f"{scaled:.4g}", key=len) if _is_small(scaled, unit) else plain


def _is_small(scaled: float, unit: str) -> bool:
    return abs(scaled) < (0.01 if unit == "fraction" else 1)


def with_spreads(value: float, spreads: Sequence[float | None], unit: str = "") -> str:
    """A mean ± its spreads, all to the same digit.

    That is the second significant digit of the smallest spread, but none after the last one that :func:`number` may
    give the mean (two decimals, or four significant digits of a small mean), and none before the decimal point.

    Args:
        value: the mean.
        spreads: None where unknown.
        unit: as for :func:`number`.

    Example:
        >>> with_spreads(0.9495, [0.0253, 0.114], "fraction"), with_spreads(0.533, [0.0253])
        ('95.0 ± 2.5 ± 11.4', '0.533 ± 0.025')
        >>> with_spreads(94.95, [0.002387]), with_spreads(1348.02, [146.53]), with_spreads(0.02, [0.006557])
        ('94.95 ± 0.00', '1348 ± 147', '0.0200 ± 0.0066')
    """
    text, scale = number(value, unit), 100 if unit == "fraction" else 1
    decimals, known = len(text.partition(".")[2]), [scale * spread for spread in spreads if spread]
    if known:
        most = len(f"{scale * value:#.4g}".partition(".")[2]) if _is_small(scale * value, unit) else 2
        decimals = min(most, max(0, 1 - math.floor(math.log10(min(known)))))
    texts = ["–" if spread is None else f"{scale * spread:.{decimals}f}" for spread in spreads]
    return " ± ".join([f"{scale * value:.{decimals}f}", *texts])


def interval(low: float | None, high: float | None, unit: str = "") -> str:
    """The bounds of an interval.

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


def code(name: str) -> str:
    r"""A name of someone else's on one line in a code span, in which nothing is markup, a link or a mention.

    Example:
        >>> code("a wren"), code("x\n## Results"), code("`<b>`")
        ('`a wren`', '`x ## Results`', '`` `<b>` ``')
    """
    line = " ".join(name.split())
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    return f"{fence} {line} {fence}" if len(fence) > 1 else f"{fence}{line or ' '}{fence}"


def lines(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """An aligned table.

    Args:
        header: column names.
        rows: as many cells each as there are columns.
        left: number of leading columns that are left-aligned; the others are right-aligned.

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
