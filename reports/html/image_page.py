"""The bars of an additive table: each begins where the last one ended, down to the logit."""

from __future__ import annotations

from dataclasses import dataclass

from reports.additive import AdditiveTable
from reports.explained_model import Row

WIDTH, BAR = 400, 20  # of the drawing, and of a line, in its own units


@dataclass(frozen=True)
class Bar:
    """One line of the drawing.

    Args:
        name: of the line.
        value: added, or the sum.
        total: after it.
        left: of the bar in 0..400.
        width: of the bar, at least 1.
        kind: "for", "against" or "sum".
    """

    name: str
    value: float
    total: float
    left: float
    width: float
    kind: str


def bars(table: AdditiveTable, rows: list[Row]) -> list[Bar]:
    """The lines of a table as bars on one scale.

    Args:
        table: additive.
        rows: its lines with their names.
    """
    values = [(row.name, row.line.contribution) for row in rows]
    values.append((f"{table.others} other {table.worded}s", table.rest))
    values.append(("bias", table.bias or 0.0))
    if table.residual is not None:
        values.append(("residual, not from units", table.residual))
    ends, total = [0.0], 0.0
    for _, value in values:
        total += value
        ends.append(total)
    low, high = min(ends), max(ends)
    scale = WIDTH / ((high - low) or 1.0)
    drawn = []
    for (name, value), start, end in zip(values, ends[:-1], ends[1:], strict=True):
        left, width = (min(start, end) - low) * scale, max(abs(value) * scale, 1.0)
        drawn.append(Bar(name, value, end, round(left, 2), round(width, 2), "for" if value >= 0 else "against"))
    left, width = (min(0.0, total) - low) * scale, max(abs(total) * scale, 1.0)
    return [*drawn, Bar("logit", table.logit, total, round(left, 2), round(width, 2), "sum")]
