"""Curves on logarithmic axes, in columns of two panels, for ``benchmarks/scale.py``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT = 380, 300  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 64, 28, 36, 48  # around the axes
WHITE, BLACK, GREY, PROPORTIONAL, CURVE = "#ffffff", "#000000", "#e0e0e0", "#909090", "#0072b2"
FONT, DOT = 14, 4


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


def draw(columns: Sequence[Sequence[Panel]]) -> Image.Image:
    """The panels of every column below each other."""
    picture = Image.new("RGB", (WIDTH * max(1, len(columns)), HEIGHT * max(map(len, columns), default=1)), WHITE)
    for left, column in enumerate(columns):
        for top, panel in enumerate(column):
            picture.paste(_panel(panel), (WIDTH * left, HEIGHT * top))
    return picture


def ticks(low: float, high: float) -> list[float]:
    """The numbers 1, 2 and 5 times a power of ten from below the lowest to above the highest value.

    Example:
        >>> ticks(18.0, 160.0)
        [10.0, 20.0, 50.0, 100.0, 200.0]
    """
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    numbers = [step * 10.0**decade for decade in decades for step in (1, 2, 5)]
    first, last = max(n for n in numbers if n < low), min(n for n in numbers if n > high)
    return [number for number in numbers if first <= number <= last]


def _panel(panel: Panel) -> Image.Image:
    picture = Image.new("RGB", (WIDTH, HEIGHT), WHITE)
    canvas, font = ImageDraw.Draw(picture), ImageFont.load_default(FONT)
    canvas.text((LEFT, 8), panel.title, fill=BLACK, font=font)
    canvas.text((WIDTH / 2, HEIGHT - 22), panel.axis, fill=BLACK, font=font, anchor="ma")
    points = [point for point in panel.points if point.y > 0]
    if not points:
        return picture
    lines = ticks(min(point.least or point.y for point in points), max(point.most or point.y for point in points))
    xs = [point.x for point in panel.points]

    def place(x: float, y: float) -> tuple[float, float]:
        """Pixels of a point."""
        across = math.log(x / xs[0]) / math.log(xs[-1] / xs[0]) if len(xs) > 1 else 0.5
        up = math.log(y / lines[0]) / math.log(lines[-1] / lines[0])
        return LEFT + (WIDTH - LEFT - RIGHT) * across, HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * up

    for line in lines:
        (_, y) = place(xs[0], line)
        canvas.line([(LEFT, y), (WIDTH - RIGHT, y)], fill=GREY)
        canvas.text((LEFT - 8, y), f"{line:g}", fill=BLACK, font=font, anchor="rm")
    for x in xs:
        canvas.text((place(x, lines[0])[0], HEIGHT - BOTTOM + 4), f"{x:,g}", fill=BLACK, font=font, anchor="ma")
    canvas.line(
        [place(points[0].x, points[0].y), place(*_end(points[0], panel.power, xs[-1], lines[-1]))], PROPORTIONAL
    )
    for one, other in pairwise(points):
        canvas.line([place(one.x, one.y), place(other.x, other.y)], fill=CURVE, width=2)
    for point in points:
        x, y = place(point.x, point.y)
        canvas.ellipse((x - DOT, y - DOT, x + DOT, y + DOT), fill=CURVE)
        if point.least and point.most:
            canvas.line([place(point.x, point.least), place(point.x, point.most)], fill=CURVE, width=2)
    return picture


def _end(start: Point, power: int, last: float, top: float) -> tuple[float, float]:
    """Where the grey line leaves the panel: at the last value of what grows, or at the top."""
    y = start.y * (last / start.x) ** power
    return (last, y) if y <= top else (start.x * (top / start.y) ** (1 / power), top)
