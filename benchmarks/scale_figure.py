"""Curves on logarithmic axes, in columns of two panels, for ``benchmarks/scale.py``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter
from PIL import Image

from protometry.explanations.charts import BLUE, GREY, chart, styled, to_picture

WIDTH, HEIGHT = 380, 300  # pixels of a panel


@dataclass(frozen=True)
class Point:
    """A value above what grows, with the least and the most that were measured."""

    x: float
    y: float
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True)
class Panel:
    """One curve.

    Args:
        title: what is measured.
        axis: what grows.
        points: in order; those that are not above zero are left out.
        power: of what grows, to which the grey line through the first point is proportional; 0 for one that stays.
    """

    title: str
    axis: str
    points: Sequence[Point]
    power: int


@styled
def draw(columns: Sequence[Sequence[Panel]]) -> Image.Image:
    """The panels of every column below each other."""
    rows, count = max(map(len, columns), default=1), max(1, len(columns))
    figure, axes = chart(WIDTH, HEIGHT, rows, count)
    for place, column in enumerate(columns):
        for row in range(rows):
            _panel(axes[row * count + place], column[row] if row < len(column) else None)
    return to_picture(figure)


def _panel(axes: Axes, panel: Panel | None) -> None:
    points = [point for point in panel.points if point.y > 0] if panel else []
    axes.set_visible(panel is not None)
    if panel is None or not points:
        return
    axes.set(title=panel.title, xlabel=panel.axis, xscale="log", yscale="log")
    xs, ys = [point.x for point in points], [point.y for point in points]
    spread = [[y - (point.least or y), (point.most or y) - y] for point, y in zip(points, ys, strict=True)]
    axes.errorbar(xs, ys, list(zip(*spread, strict=True)), color=BLUE, marker="o")
    axes.plot(xs, [ys[0] * (x / xs[0]) ** panel.power for x in xs], color=GREY, linewidth=1)
    grown = [point.x for point in panel.points]
    axes.set(xlim=(min(grown) / 1.2, max(grown) * 1.2), ylim=(min(ys) / 2, max(ys) * 2))
    axes.set_xticks(grown)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_formatter(NullFormatter())
    axes.grid(axis="x", visible=False)
