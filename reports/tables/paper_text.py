"""A paper's table with the numbers of runs in it, as text: to read, for LaTeX, for other programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from protometry.metrics.page import arrow
from protometry.reports.markdown import interval, number
from protometry.reports.published.columns import explained
from protometry.reports.published.paper_tables import Column, PaperTable
from protometry.reports.tables.formats import as_csv, as_latex
from protometry.reports.tables.paper_rows import Cell, Row, Section, places
from protometry.reports.tables.run_tables import Part, as_markdown

BEST = (
    "bold: best of a column, italics: second best of at least three; published rows and rows of runs are ranked apart, "
    "because they were not measured alike"
)
EMPTY = "–"


def text_of_paper(table: PaperTable, sections: Sequence[Section], form: str, spread: bool = False) -> str:
    """A paper's table.

    Args:
        table: of the paper.
        sections: its rows.
        form: "markdown", "latex", "csv" or "json"; the latter two have one number a cell at full precision.
        spread: whether deviations, intervals and n are printed; the latter two forms always have them.
    """
    if form in ("csv", "json"):
        entries = [record for section in sections for record in _records(table, section)]
        return (as_csv(entries) if form == "csv" else json.dumps(entries, indent=2, ensure_ascii=False)).rstrip("\n")
    parts = [_part(table, section, spread) for section in sections]
    parts.append(Part(notes=_notes(table, sections, spread)))
    return as_markdown(parts) if form == "markdown" else as_latex(parts, standalone=True)


def _ranks(table: PaperTable, rows: Sequence[Row]) -> dict[tuple[int, str], int]:
    """The places of cells, by row and heading."""
    ranks_by_cell: dict[tuple[int, str], int] = {}
    for column in table.columns:
        values = [row.cells[column.heading].value if column.heading in row.cells else None for row in rows]
        texts = ["" if value is None else number(value, column.unit) for value in values]
        ranks = enumerate(places(rows, column, texts))
        ranks_by_cell |= {(at, column.heading): rank for at, rank in ranks if rank is not None}
    return ranks_by_cell


def _part(table: PaperTable, section: Section, spread: bool) -> Part:
    """The rows of a data set; a heading or a row has the marks that all of its cells share."""
    dataset, rows = section
    published = [row for row in rows if row.is_published]
    above = {each.heading: _shared([row.cells[each.heading] for row in published if each.heading in row.cells], [])
             for each in table.columns}  # fmt: skip
    header, texts = ["model", "source"], []
    for column in table.columns:
        words = (column.heading, arrow(column.higher_is_better), "%" if column.unit == "fraction" else "")
        header.append(" ".join(filter(None, words)) + _in_brackets(above[column.heading]))
    for row in rows:
        stated = [mark for marks in above.values() for mark in marks]
        aside = _shared([cell for cell in row.cells.values() if cell.value is not None], stated)
        label = ", ".join(filter(None, [row.model, row.words])) + _in_brackets(aside)
        cells = [
            _text(row.cells.get(each.heading), each, spread, [*above[each.heading], *aside]) for each in table.columns
        ]
        texts.append([label, row.source, *cells, *([_count(row)] if spread else [])])
    at = {column.heading: index for index, column in enumerate(table.columns, 2)}
    best = {(index, at[heading]): rank for (index, heading), rank in _ranks(table, rows).items()}
    return Part(f"{table.name} on {dataset}: {table.title}", "", [*header, *(["n"] if spread else [])], texts, (), best)


def _shared(cells: Sequence[Cell], but: Sequence[str]) -> list[str]:
    """Marks that all of several cells have."""
    if len(cells) < 2:
        return []
    return [mark for mark in cells[0].marks if mark not in but and all(mark in cell.marks for cell in cells)]


def _in_brackets(marks: Sequence[str]) -> str:
    return f" ({' '.join(marks)})" if marks else ""


def _text(cell: Cell | None, column: Column, spread: bool, stated: Sequence[str]) -> str:
    """A number with its spread and the marks that are not stated elsewhere."""
    if cell is None:
        return EMPTY
    if cell.value is None:
        return "undefined" if cell.reason == "undefined" else "n/a"
    text = number(cell.value, column.unit)
    if spread and cell.sd is not None:
        text = f"{text} ± {number(cell.sd, column.unit)}"
    elif spread:
        text = f"{text} {interval(cell.low, cell.high, column.unit)}".rstrip()
    return text + _in_brackets([mark for mark in cell.marks if mark not in stated])


def _count(row: Row) -> str:
    """How many runs, folds, seeds or participants a row's numbers are of."""
    return "–".join(str(n) for n in sorted({cell.n for cell in row.cells.values() if cell.n})) or EMPTY


def _notes(table: PaperTable, sections: Sequence[Section], spread: bool) -> list[str]:
    """How to read the numbers, and why some are missing."""
    rows = [row for _, rows in sections for row in rows]
    notes = [BEST] if any(_ranks(table, rows) for _, rows in sections) else []
    if spread:
        notes.append(
            "±: over folds or seeds of runs, and as the paper prints it; [ ]: 95 % interval of a single run over the "
            "images; n: runs with a value, or the paper's folds, seeds or participants"
        )
    if any(row.dataset is None for row in rows):
        notes.append(
            "a study has other people, photos and pages than the paper's; its data set is not recorded, so it is "
            "listed below its method in each"
        )
    all_cells = [(row, heading, cell) for row in rows for heading, cell in row.cells.items()]
    notes += _where([(f"n/a, because {cell.reason}", row, heading) for row, heading, cell in all_cells if cell.reason])
    differs = [
        (row, heading, each) for row, heading, cell in all_cells if cell.marks for each in cell.match.differences
    ]
    notes += _where([(f"† published with {each}", row, heading) for row, heading, each in differs])
    return notes + explained([replace(cell.match, differences=()) for *_, cell in all_cells if not cell.reason])


def _where(notes: Sequence[tuple[str, Row, str]]) -> list[str]:
    """Lines on rows, each with the columns and the runs that it holds for."""
    headings: dict[tuple[str, str], list[str]] = {}
    for text, row, heading in notes:
        headings.setdefault((text, row.source), []).append(heading)
    sources: dict[tuple[str, str], list[str]] = {}
    for (text, source), columns in headings.items():
        sources.setdefault((text, ", ".join(dict.fromkeys(columns))), []).append(source)
    return [f"{text}: {columns}, in {', '.join(names)}" for (text, columns), names in sources.items()]


def _records(table: PaperTable, section: Section) -> list[dict[str, Any]]:
    """A record a cell, with numbers in the units of ``metrics.json``."""
    dataset, rows = section
    ranks, entries = _ranks(table, rows), []
    for at, row in enumerate(rows):
        for column in [each for each in table.columns if each.heading in row.cells]:
            cell, rank = row.cells[column.heading], ranks.get((at, column.heading))
            entries.append(
                {"table": table.name, "dataset": dataset, "model": row.model, "row": row.words, "source": row.source,
                 "published": row.is_published, "column": column.heading, "metric": cell.key, "unit": column.unit,
                 "higher_is_better": column.higher_is_better, "mean": cell.value, "sd": cell.sd, "n": cell.n,
                 "low": cell.low, "high": cell.high, "rank": None if rank is None else rank + 1,
                 "note": "; ".join(filter(None, [*cell.marks, *cell.match.differences, cell.reason]))}
            )  # fmt: skip
    return entries
