"""The tables of all metrics, made from their entries: a page of the guide's site."""

from __future__ import annotations

import math
from collections.abc import Iterable

from protometry.metrics.base import PartsMetric
from protometry.metrics.entry import Family, MetricEntry

COLUMNS = ("key", "name", "formula", "range", "dir.", "unit", "averaged over", "source", "easily misread")


def arrow(higher_is_better: bool | None) -> str:
    """Which way is good; nothing where neither is.

    Example:
        >>> arrow(True), arrow(False), arrow(None)
        ('↑', '↓', '')
    """
    return {True: "↑", False: "↓", None: ""}[higher_is_better]


def printed_range(low: float, high: float) -> str:
    """A range of values.

    Example:
        >>> printed_range(-math.inf, 1.0)
        '(−∞, 1]'
    """
    left = "(−∞" if low == -math.inf else f"[{low:.4g}".replace("-", "−")
    return left + (", ∞)" if high == math.inf else f", {high:.4g}]")


def tables(families: Iterable[Family]) -> str:
    """A section of Markdown for every family, with a row for every metric of its suite."""
    return "\n\n".join(_section(family) for family in families)


def _section(family: Family) -> str:
    rows = [_row(entry) for entry in family.entries if not entry.full]
    about = " ".join(filter(None, (family.question, family.about)))
    head = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    return "\n".join([f"### {family.name}", "", about, "", *head, *rows])


def _row(entry: MetricEntry) -> str:
    kind, words = entry.metric, entry.words
    if issubclass(kind, PartsMetric):
        name = entry.part or ""
        ends, part = kind.value_ranges[name], kind.exceptions.get(name, {})
    else:
        ends, part = kind.value_range, {}
    measured = (
        printed_range(*ends),
        arrow(entry.higher_is_better),
        entry.unit,
        part.get("averaged_over", kind.averaged_over),
    )
    return f"| {' | '.join((f'`{entry.key}`', words.name, words.formula, *measured, words.source, words.misread))} |"
