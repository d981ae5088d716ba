"""The picture of an evaluation in which concepts were corrected: accuracy after each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from reports.pictures.family import Evaluated, PictureFamily

WIDTH, HEIGHT, MARGIN, FONT = 360, 260, 40, 12
WHITE, BLACK, GREY, BAND = "#ffffff", "#000000", "#cccccc", "#cfe2f3"
COLOURS = {"": ("#1f77b4", "random order"), "_uncertainty": ("#d62728", "most uncertain first")}
PANELS = {
    "": "concepts of one question at a time",
    "_single": "concept by concept",
    "_binary": "1 or 0, a question at a time",
    "_percentiles": "percentiles, a question at a time",
}
LINES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of accuracy


def intervention_pictures(evaluated: Evaluated) -> dict[str, Image.Image]:
    """Curves of correction side by side, the random order with a standard deviation over its trials.

    Args:
        evaluated: what an evaluation found; the entries ``intervention/area...`` hold their ``curve``.
    """
    metrics = evaluated.metrics
    found = {
        title: {order: metrics[key] for order in COLOURS if (key := f"intervention/area{panel}{order}") in metrics}
        for panel, title in PANELS.items()
    }
    panels = [_panel(title, curves) for title, curves in found.items() if curves]
    if not panels:
        return {}
    picture = Image.new("RGB", (WIDTH * len(panels), HEIGHT), WHITE)
    for index, panel in enumerate(panels):
        picture.paste(panel, (index * WIDTH, 0))
    return {"intervention": picture}


def _panel(title: str, curves: Mapping[str, Mapping[str, Any]]) -> Image.Image:
    """Axes, the band of the random order, and the curves with their names."""
    panel = Image.new("RGB", (WIDTH, HEIGHT), WHITE)
    draw, font = ImageDraw.Draw(panel), ImageFont.load_default(FONT)
    steps = len(next(iter(curves.values()))["curve"]) - 1
    draw.text((MARGIN, 4), title, fill=BLACK, font=font)
    for level in LINES:
        (left, y), (right, _) = _places([level, level])
        draw.line([(left, y), (right, y)], fill=GREY)
        draw.text((MARGIN - 6, y), f"{100 * level:.0f}", fill=BLACK, font=font, anchor="rm")
    draw.text((MARGIN, HEIGHT - MARGIN + 6), "0", fill=BLACK, font=font, anchor="ma")
    draw.text((WIDTH - 12, HEIGHT - MARGIN + 6), str(steps), fill=BLACK, font=font, anchor="ra")
    draw.text((WIDTH / 2, HEIGHT - 18), "steps; accuracy in %", fill=BLACK, font=font, anchor="ma")
    for order, entry in curves.items():
        curve, spread = entry["curve"], entry["curve_sd"]
        if order == "":
            low, high = ([a + sign * s for a, s in zip(curve, spread, strict=True)] for sign in (-1, 1))
            draw.polygon([*_places(high), *reversed(_places(low))], fill=BAND)
    for row, (order, entry) in enumerate(curves.items()):
        colour, name = COLOURS[order]
        draw.line(_places(entry["curve"]), fill=colour, width=2)
        draw.text((WIDTH - 16, HEIGHT - MARGIN - 36 + 16 * row), name, fill=colour, font=font, anchor="ra")
    return panel


def _places(curve: Sequence[float]) -> list[tuple[float, float]]:
    """Pixels of accuracies in 0..1, from the left to the right end of the axes."""
    across, down = WIDTH - 12 - MARGIN, HEIGHT - MARGIN - 24
    clipped = [min(max(value, 0.0), 1.0) for value in curve]
    return [(MARGIN + across * step / (len(curve) - 1), 24 + down * (1 - a)) for step, a in enumerate(clipped)]


FAMILY = PictureFamily(
    intervention_pictures,
    {"intervention": "How accuracy grows as a person corrects the concepts, one question after the other."},
)
