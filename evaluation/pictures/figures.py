"""Figures of runs, next to what a paper printed: bars with intervals, radar, one metric against another."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from protometry.evaluation.published.paper_tables import Column, PaperTable
from protometry.evaluation.tables.markdown import printed_unit
from protometry.evaluation.tables.paper_rows import Row, Section
from protometry.evaluation.tables.records import Cell
from protometry.explanations.charts import BLUE, DPI, GREY, chart, radial, styled
from protometry.metrics.page import arrow
from protometry.run_folder.atomic import write_new

Kind = Literal["bars", "radar", "scatter"]
SUFFIXES = (".png", ".pdf", ".svg")
PRINT_DPI = 200
BAR, PANEL, ACROSS, LABELS = 22, 260, 4, 260  # pixels of a bar and a panel, panels in a line, pixels of names
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")  # of Okabe and Ito
MARKERS = "os^Dv*P"
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
def draw(kind: Kind, table: PaperTable, sections: Sequence[Section]) -> Figure:
    """A figure of the data sets of the runs.

    Raises:
        ValueError: if its metrics are too few or of the wrong kind for the figure.
    """
    filled = [(dataset, [row for row in rows if row.cells]) for dataset, rows in sections if _own(rows)]
    return {"bars": _bars, "radar": _radar, "scatter": _scatter}[kind](table.columns, filled)


def _own(rows: Sequence[Row]) -> bool:
    return any(not row.is_published for row in rows)


def _name(row: Row, columns: Sequence[Column] = ()) -> str:
    """The row, marked if one of its numbers was measured differently from the paper's."""
    differs = any(OTHERWISE in row.cells[each.heading].marks for each in columns if each.heading in row.cells)
    return f"{', '.join(filter(None, [row.model, row.words]))} ({row.source})" + f" {OTHERWISE}" * differs


def _title(column: Column) -> str:
    unit = f"({printed_unit(column.unit)})" if column.unit else ""
    return " ".join(filter(None, [column.heading, arrow(column.higher_is_better), unit]))


def _caption(*texts: str, published: str, sections: Sequence[Section]) -> str:
    """The line below a figure; how published rows look is said where there are some."""
    rows = [row for _, rows in sections for row in rows]
    differs = any(OTHERWISE in cell.marks for row in rows for cell in row.cells.values())
    mark = [f"{OTHERWISE} measured differently from the paper's, see the table"] if differs else []
    return "\n".join([*([published] if any(row.is_published for row in rows) else []), *texts, *mark])


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
    figure.supxlabel(_caption(SPREAD, published="blue: runs, grey: published", sections=sections), fontsize=8)
    return figure


def _bar_panel(axes: Axes, rows: Sequence[Row], column: Column, dataset: str, named: bool) -> None:
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


def _looks(rows: Sequence[Row], columns: Sequence[Column]) -> Iterator[tuple[Row, dict[str, Any]]]:
    """How rows are distinguished: by marker, and models by colour; published ones are hollow and dashed."""
    colours, markers = cycle(COLOURS), cycle(MARKERS)
    known: dict[tuple[str, str], str] = {}
    for row in rows:
        model = (row.nearest or row.source, row.words)
        known[model] = known[model] if model in known else next(colours)
        hollow = {"markerfacecolor": "white", "linestyle": "--"} if row.is_published else {}
        yield row, {"color": known[model], "marker": next(markers), "label": _name(row, columns), **hollow}


def _radar(columns: Sequence[Column], sections: Sequence[Section]) -> Figure:
    wrong = [each.heading for each in columns if each.unit != "fraction"]
    if wrong or len(columns) < 3:
        got = f"{', '.join(wrong)} are none" if wrong else f"there are {len(columns)}"
        raise ValueError(
            f"Expected `metric` to name three or more fractions for `kind: radar`, but {got}. Of these, "
            f"`--metric {','.join(each.heading for each in columns if each.unit == 'fraction')}` are fractions."
        )
    down = [each.higher_is_better is False for each in columns]
    labels = [f"1 − {each.heading}" if low else each.heading for each, low in zip(columns, down, strict=True)]
    figure = Figure((4.6 * len(sections), 6.0), DPI, layout="constrained")
    for panel, (dataset, rows) in enumerate(sections, 1):
        axes, angles = radial(figure, labels, (1, len(sections), panel))
        for row, look in _looks(rows, columns):
            values = np.array([_numbers(row.cells.get(each.heading), each)[0] / 100 for each in columns])
            values = np.where(down, 1 - values, values)
            there = ~np.isnan(values)
            if there.any():
                axes.plot(*[np.append(each[there], each[there][:1]) for each in (np.array(angles), values)], **look)
        axes.set_title(dataset, loc="center")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), fontsize=8)
    caption = _caption("from 0 in the centre to 1", published="dashed: published", sections=sections)
    figure.supxlabel(caption, fontsize=8)
    return figure


def _scatter(columns: Sequence[Column], sections: Sequence[Section]) -> Figure:
    if len(columns) < 2:
        raise ValueError(
            "Expected `metric` to name two or more metrics for `kind: scatter`, the first to be drawn against "
            "the others, such as `--metric general/accuracy,compactness/local_size`."
        )
    upright, others = columns[0], columns[1:]
    height = 320 + 16 * max(len(rows) for _, rows in sections)
    figure, panels = chart(360, height, len(sections), len(others))
    pairs = [(dataset, rows, each) for dataset, rows in sections for each in others]
    for axes, (dataset, rows, across) in zip(panels, pairs, strict=True):
        for row, look in _looks(rows, [upright, across]):
            x, *xs = _numbers(row.cells.get(across.heading), across)
            y, *ys = _numbers(row.cells.get(upright.heading), upright)
            if not np.isnan(x + y):
                errors = np.array([xs, ys])[..., None]
                axes.errorbar(
                    x, y, xerr=errors[0], yerr=errors[1], elinewidth=1, capsize=2, **look | {"linestyle": "none"}
                )
        axes.set(xlabel=_title(across), ylabel=_title(upright), title=dataset)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0), borderaxespad=6, fontsize=7)  # below the label
    figure.supxlabel(_caption(SPREAD, published="hollow: published", sections=sections), fontsize=7)
    return figure
