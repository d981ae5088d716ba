"""Charts by matplotlib in one style, without a display; equal numbers and library versions give equal pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.style import context
from PIL import Image

BLUE, ORANGE, GREY, BAND = "#0072b2", "#d55e00", "#808080", "#cfe2f3"
DPI = 100

# decorates the functions that draw, whatever the user's own settings of matplotlib are
styled = context(
    [
        "default",
        {
            "font.size": 9,
            "axes.titlelocation": "left",
            "axes.titlesize": 10,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.color": "#d0d0d0",
            "legend.frameon": False,
            "lines.linewidth": 2,
        },
    ]
)


def chart(width: int, height: int, rows: int = 1, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure with panels of ``width`` x ``height`` pixels, and their axes row by row."""
    figure = Figure((columns * width / DPI, rows * height / DPI), DPI, layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def radial(figure: Figure, labels: Sequence[str]) -> tuple[Any, list[float]]:
    """Axes from 0 in the centre to 1, clockwise from the top, and the angle of every axis."""
    angles = [2 * math.pi * index / len(labels) for index in range(len(labels))]
    axes: Any = figure.add_subplot(projection="polar")
    axes.set_theta_zero_location("N")
    axes.set_theta_direction(-1)
    axes.set_xticks(angles, labels)
    axes.set_yticks([0.25, 0.5, 0.75, 1.0], [])
    axes.tick_params(pad=14)
    axes.set_ylim(0, 1)
    return axes, angles


def to_picture(figure: Figure) -> Image.Image:
    """A figure as an 8-bit RGB picture."""
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba()).convert("RGB")
