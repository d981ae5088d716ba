"""Charts by matplotlib in one style, without a display; equal numbers and library versions give equal pictures."""

from __future__ import annotations

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
    """A figure with panels of one size.

    Args:
        width: of a panel in pixels.
        height: of a panel in pixels.
        rows: of panels.
        columns: of panels.

    Returns:
        The figure, and the axes of its panels row by row.
    """
    figure = Figure((columns * width / DPI, rows * height / DPI), DPI, layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def to_picture(figure: Figure) -> Image.Image:
    """A figure as an 8-bit RGB picture.

    Args:
        figure: any.
    """
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba()).convert("RGB")
