"""The tables of papers that are printed with the numbers of runs in them: which columns and rows they have.

They are listed in ``paper_tables.json``. What a paper printed in them stands in ``published.json`` alone: a record
belongs to the row and the column whose keys together are its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files

from protometry.evaluation.published.numbers import Published, all_records
from protometry.metrics.suite import ENTRIES
from protometry.run_folder.command_line.messages import did_you_mean


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        heading: without direction and unit.
        key: of its results, as in ``published.json``; of a table with rows of several keys, what all begin with.
    """

    heading: str
    key: str
    unit: str
    higher_is_better: bool | None


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper.

    Args:
        papers: the ``paper`` of its records.
        sources: the ``table`` of its records.
        rows: words of a row -> what its keys end in, where a model has several rows.
    """

    name: str
    title: str
    papers: Sequence[str]
    sources: Sequence[str]
    columns: Sequence[Column]
    rows: Mapping[str, str] = field(default_factory=lambda: {"": ""})

    @property
    def records(self) -> list[Published]:
        """What the paper printed."""
        return [each for each in all_records() if each.paper in self.papers and each.table in self.sources]


def paper_table(name: str) -> PaperTable:
    """A table by its name.

    Raises:
        ValueError: if there is no such table, with the nearest name.
    """
    if name not in TABLES:
        raise ValueError(
            f"Expected argument `published` to be one of {', '.join(TABLES)}, but got {name!r}."
            + did_you_mean(name, TABLES)
        )
    return TABLES[name]


def of_headings(table: PaperTable, headings: Sequence[str]) -> PaperTable:
    """A table with some of its columns.

    Raises:
        ValueError: if it has no such column.
    """
    known = {column.heading: column for column in table.columns}
    for heading in headings:
        if heading not in known:
            raise ValueError(
                f"Expected argument `metric` to name columns of {table.name}, {', '.join(known)}, but got {heading!r}."
                + did_you_mean(heading, known)
            )
    return replace(table, columns=[known[heading] for heading in headings or known])


def columns_of(keys: Mapping[str, str]) -> tuple[Column, ...]:
    """Columns with the units and directions of their metrics; in a human study, the more are right the better.

    Example:
        >>> columns_of({"NPR": "compactness/npr", "agreement": "study/agreement_correct[examples=no]"})[1]
        Column(heading='agreement', key='study/agreement_correct[examples=no]', unit='fraction', higher_is_better=True)
    """
    columns = []
    for heading, key in keys.items():
        base = key.partition("[")[0]
        unit, better = _OTHERS.get(base, ("", None))
        if base in ENTRIES:
            unit, better = ENTRIES[base].unit, ENTRIES[base].higher_is_better
        columns.append(Column(heading, key, unit, better))
    return tuple(columns)


# keys that are not metrics of the suite: unit and direction
_OTHERS: dict[str, tuple[str, bool | None]] = {
    **{f"study/{task}_{which}": ("fraction", True) for task in ("agreement", "distinction", "output")
       for which in ("correct", "incorrect")},
    **{f"study/tradeoff_{risk}": ("fraction", None) for risk in ("low", "medium", "high")},
    "class_representation/correlation": ("", False),
}  # fmt: skip


def _all_tables() -> list[PaperTable]:
    text = (files("protometry.evaluation.published") / "paper_tables.json").read_text(encoding="utf-8")
    return [PaperTable(**table | {"columns": columns_of(table["columns"])}) for table in json.loads(text)]


TABLES: dict[str, PaperTable] = {table.name: table for table in _all_tables()}
