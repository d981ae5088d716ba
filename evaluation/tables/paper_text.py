"""A paper's table with the numbers of runs in it, as text: to read, for LaTeX, for other programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from protometry.evaluation.published.columns import explained
from protometry.evaluation.published.paper_tables import Column, PaperTable
from protometry.evaluation.tables.paper_rows import PaperRow, Section, ranks
from protometry.evaluation.tables.records import Cell, in_brackets, printed
from protometry.evaluation.tables.renderers import Table, rendered
from protometry.metrics.page import arrow

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
    return rendered(
        form,
        lambda: _tables(table, sections, spread),
        lambda: [record for section in sections for record in _records(table, section)],
        standalone=True,
    )


def _tables(table: PaperTable, sections: Sequence[Section], spread: bool) -> list[Table]:
    tables = [_table(table, section, spread) for section in sections]
    return [*tables, Table(notes=_notes(sections, spread, is_ranked=any(each.best for each in tables)))]


def _table(table: PaperTable, section: Section, spread: bool) -> Table:
    """The rows of a data set; a heading or a row has the marks that all of its cells share."""
    dataset, rows = section
    published = [row for row in rows if row.is_published]
    above = {each.heading: _shared([row.cells[each.heading] for row in published if each.heading in row.cells], [])
             for each in table.columns}  # fmt: skip
    header, texts = ["model", "source"], []
    for column in table.columns:
        words = (column.heading, arrow(column.higher_is_better), "%" if column.unit == "fraction" else "")
        header.append(" ".join(filter(None, words)) + in_brackets(above[column.heading]))
    for row in rows:
        stated = [mark for marks in above.values() for mark in marks]
        aside = _shared([cell for cell in row.cells.values() if cell.value is not None], stated)
        label = ", ".join(filter(None, [row.model, row.words])) + in_brackets(aside)
        cells = [
            _text(row.cells.get(each.heading), each, spread, [*above[each.heading], *aside]) for each in table.columns
        ]
        texts.append([label, row.source, *cells, *([_count(row)] if spread else [])])
    positions = {column.heading: index for index, column in enumerate(table.columns, 2)}
    return Table(
        heading=f"{table.name} on {dataset}: {table.title}",
        header=[*header, *(["n"] if spread else [])],
        rows=texts,
        best={(index, positions[heading]): rank for (index, heading), rank in ranks(table, rows).items()},
    )


def _shared(cells: Sequence[Cell], but: Sequence[str]) -> list[str]:
    """Marks that all of several cells have."""
    if len(cells) < 2:
        return []
    return [mark for mark in cells[0].marks if mark not in but and all(mark in cell.marks for cell in cells)]


def _text(cell: Cell | None, column: Column, spread: bool, stated: Sequence[str]) -> str:
    """A number with its spread and the marks that are not stated elsewhere."""
    if cell is None:
        return EMPTY
    alone = cell if spread else replace(cell, spreads=(), low=None, high=None)
    return printed(alone, column.unit) + in_brackets([mark for mark in cell.marks if mark not in stated])


def _count(row: PaperRow) -> str:
    """How many runs, folds, seeds or participants a row's numbers are of."""
    return "–".join(str(n) for n in sorted({cell.n for cell in row.cells.values() if cell.n})) or EMPTY


def _notes(sections: Sequence[Section], spread: bool, is_ranked: bool) -> list[str]:
    """How to read the numbers, and why some are missing."""
    rows = [row for _, rows in sections for row in rows]
    notes = [BEST] if is_ranked else []
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
    matched = [(row, heading, cell.match) for row, heading, cell in all_cells if cell.match and not cell.reason]
    notes += _where(
        [(f"† published with {text}", row, heading) for row, heading, match in matched for text in match.differences]
    )
    return notes + explained([replace(match, differences=()) for *_, match in matched])


def _where(notes: Sequence[tuple[str, PaperRow, str]]) -> list[str]:
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
    ranked, records = ranks(table, rows), []
    for index, row in enumerate(rows):
        for column in [each for each in table.columns if each.heading in row.cells]:
            cell, rank = row.cells[column.heading], ranked.get((index, column.heading))
            differences = cell.match.differences if cell.match else ()
            records.append(
                {"table": table.name, "dataset": dataset, "model": row.model, "row": row.words, "source": row.source,
                 "published": row.is_published, "column": column.heading, "metric": cell.key, "unit": column.unit,
                 "higher_is_better": column.higher_is_better, "mean": cell.value, "sd": cell.sd, "n": cell.n,
                 "low": cell.low, "high": cell.high, "rank": None if rank is None else rank + 1,
                 "note": "; ".join(filter(None, [*cell.marks, *differences, cell.reason]))}
            )  # fmt: skip
    return records
