"""Metrics of runs as bars with intervals, next to what a paper printed."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from protometry.evaluation.published.paper_tables import Column, PaperTable
from protometry.evaluation.tables.markdown import printed_unit
from protometry.evaluation.tables.paper_rows import PaperRow, Section
from protometry.evaluation.tables.records import Cell
from protometry.explanations.charts import BLUE, DPI, GREY, styled
from protometry.metrics.page import arrow
from protometry.run_folder.atomic import write_new

SUFFIXES = (".png", ".pdf", ".svg")
PRINT_DPI = 200
BAR, PANEL, ACROSS, LABELS = 22, 260, 4, 260  # pixels of a bar and a panel, panels in a line, pixels of names
OTHERWISE = "†"
SPREAD = "lines: ± standard deviation (over runs; the paper's own) or the 95 % interval of a single run"


def check_output(path: Path) -> None:
    """Refuse a file whose name does not give a format.

    Raises:
        ValueError: see above.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"Expected argument `output` to end in {', '.join(SUFFIXES)}, but got {path}.")


def save(figure: Figure, path: Path) -> Path:
    """Write a figure; where another file lies, the new one gets a number."""
    buffer, form = io.BytesIO(), path.suffix.lower().removeprefix(".")
    undated: dict[str, dict[str, Any]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    figure.savefig(buffer, format=form, dpi=PRINT_DPI, metadata=undated.get(form), bbox_inches="tight")  # whole legends
    return write_new(path, buffer.getvalue())


@styled
def draw(table: PaperTable, sections: Sequence[Section]) -> Figure:
    """A panel for each metric and data set of the runs."""
    filled = [(dataset, [row for row in rows if row.cells]) for dataset, rows in sections if _own(rows)]
    return _bars(table.columns, filled)


def _own(rows: Sequence[PaperRow]) -> bool:
    return any(not row.is_published for row in rows)


def _name(row: PaperRow) -> str:
    return f"{', '.join(filter(None, [row.model, row.words]))} ({row.source})"


def _title(column: Column) -> str:
    unit = f"({printed_unit(column.unit)})" if column.unit else ""
    return " ".join(filter(None, [column.heading, arrow(column.higher_is_better), unit]))


def _caption(sections: Sequence[Section]) -> str:
    """The line below a figure; how published rows look is said where there are some."""
    rows = [row for _, rows in sections for row in rows]
    differs = any(OTHERWISE in cell.marks for row in rows for cell in row.cells.values())
    mark = [f"{OTHERWISE} measured differently from the paper's, see the table"] if differs else []
    colours = ["blue: runs, grey: published"] if any(row.is_published for row in rows) else []
    return "\n".join([*colours, SPREAD, *mark])


def _numbers(cell: Cell | None, column: Column) -> tuple[float, float, float]:
    """The value as it is printed, and how far its line reaches below and above; NaN and 0 where there is none."""
    if cell is None or cell.value is None:
        return np.nan, 0.0, 0.0
    scale = 100.0 if column.unit == "fraction" else 1.0
    below = above = cell.sd or 0.0
    if cell.sd is None and cell.low is not None and cell.high is not None:
        below, above = max(0.0, cell.value - cell.low), max(0.0, cell.high - cell.value)
    return scale * cell.value, scale * below, scale * above


def _bars(columns: Sequence[Column], sections: Sequence[Section]) -> Figure:
    across = min(ACROSS, len(columns))
    starts = range(0, len(columns), across)
    lines = [(dataset, rows, columns[start : start + across]) for dataset, rows in sections for start in starts]
    heights = [75 + BAR * len(rows) for _, rows, _ in lines]
    size = ((LABELS + across * PANEL) / DPI, (40 + sum(heights)) / DPI)
    figure = Figure(size, DPI, layout="constrained")
    panels = figure.subplots(len(lines), across, squeeze=False, height_ratios=heights)
    for line, (dataset, rows, some) in enumerate(lines):
        for column, axes in enumerate(panels[line]):
            if column < len(some):
                _bar_panel(axes, rows, some[column], dataset, column == 0)
            else:
                axes.set_axis_off()
    figure.supxlabel(_caption(sections), fontsize=8)
    return figure


def _bar_panel(axes: Axes, rows: Sequence[PaperRow], column: Column, dataset: str, named: bool) -> None:
    cells = [row.cells.get(column.heading) for row in rows]
    numbers, heights = np.array([_numbers(cell, column) for cell in cells]), np.arange(len(rows))
    axes.barh(heights, numbers[:, 0], color=[GREY if row.is_published else BLUE for row in rows], height=0.7)
    for line in np.flatnonzero(numbers[:, 1:].sum(axis=1)):
        axes.errorbar(numbers[line, 0], line, xerr=numbers[line, 1:, None], color="black", capsize=3, linewidth=1)
    for row, cell in enumerate(cells):
        missing, differs = cell is None or cell.value is None, cell is not None and OTHERWISE in cell.marks
        text, colour = ("–", "black") if missing else (OTHERWISE * differs, "white")
        axes.text(0.01, row, text, va="center", color=colour, transform=axes.get_yaxis_transform())
    axes.set_yticks(heights, [_name(row) for row in rows] if named else [""] * len(rows))
    axes.set(title=f"{_title(column)}\n{dataset}", ylim=(len(rows) - 0.5, -0.5))
    axes.grid(visible=False, axis="y")
