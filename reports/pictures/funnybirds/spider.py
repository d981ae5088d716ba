"""The spider plot of an evaluation by the FunnyBirds protocol."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from explanations.views import BLACK, WHITE

AXES = {
    "accuracy": "accuracy", "bi": "BI", "csdc": "CSDC", "pc": "PC", "dc": "DC", "d": "D", "sd": "SD", "ts": "TS",
}  # fmt: skip
SIZE, RADIUS, TITLE, TEXT = 440, 135, 16, 13
LINES = (0.25, 0.5, 0.75, 1.0)
GREY, FILL, LINE = "#c0c0c0", "#cfe2f3", "#1f77b4"
FAMILY = "funnybirds/"


def spider_plot(metrics: Mapping[str, Mapping[str, Any]], title: str) -> Image.Image | None:
    """All metrics on axes from 0 (centre) to 1, as Hesse et al. (2023) draw a model with its explanations.

    Args:
        metrics: of an evaluation, by key.
        title: model and interface.

    Returns:
        The picture; None if a metric is missing. An undefined one has no point, and the outline goes on with the next.
    """
    if any(FAMILY + name not in metrics for name in AXES):
        return None
    values = [float(metrics[FAMILY + name]["value"]) for name in AXES]
    picture = Image.new("RGB", (SIZE, SIZE), WHITE)
    draw, font = ImageDraw.Draw(picture), ImageFont.load_default(TEXT)
    points = [_place(axis, value) for axis, value in enumerate(values) if not math.isnan(value)]
    if len(points) > 2:
        draw.polygon(points, fill=FILL)
    for level in LINES:
        draw.polygon([_place(axis, level) for axis in range(len(AXES))], outline=GREY)
    for axis, (name, value) in enumerate(zip(AXES.values(), values, strict=True)):
        draw.line([_place(axis, 0), _place(axis, 1)], fill=GREY)
        text = "undefined" if math.isnan(value) else f"{value:.2f}"
        draw.text(_place(axis, 1.25), f"{name}\n{text}", fill=BLACK, font=font, anchor="mm", align="center")
    draw.line([*points, *points[:1]], fill=LINE, width=2)
    for x, y in points:
        draw.circle((x, y), 4, fill=LINE)
    draw.text((SIZE / 2, 6), title, fill=BLACK, font=ImageFont.load_default(TITLE), anchor="ma")
    draw.text((SIZE / 2, SIZE - 6), _below(metrics), fill=BLACK, font=font, anchor="md")
    return picture


def _below(metrics: Mapping[str, Mapping[str, Any]]) -> str:
    """Completeness, and the number of important parts, without which it says little."""
    values = [metrics.get(FAMILY + name, {}).get("value", math.nan) for name in ("completeness", "important_parts")]
    if any(math.isnan(value) for value in values):
        return "completeness undefined"
    return "completeness {:.2f} with {:.1f} important parts".format(*values)


def _place(axis: int, value: float) -> tuple[float, float]:
    """Pixel of a value on an axis; the first points upwards, the others follow clockwise."""
    angle = 2 * math.pi * axis / len(AXES)
    return SIZE / 2 + RADIUS * value * math.sin(angle), SIZE / 2 - RADIUS * value * math.cos(angle)
