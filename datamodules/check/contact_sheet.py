"""The contact sheet of a check: many samples with everything that is annotated on them in one picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw

from protometry.datamodules.plot import plot_sample
from protometry.datamodules.sample import Sample

TILE = 192
CAPTION = 30
GAP = 6
COLUMNS = 6


@dataclass(frozen=True)
class Tile:
    """One sample on the sheet, with two lines below it: its split and id, and its class."""

    sample: Sample
    split: str
    sample_id: str
    text: str


def contact_sheet(tiles: Sequence[Tile]) -> Image.Image:
    """Draw samples in rows, see :func:`protometry.datamodules.plot.plot_sample`.

    Example:
        >>> from protometry.datamodules import SketchBirds
        >>> sample = SketchBirds("tiny").dataset("test")[0]
        >>> contact_sheet([Tile(sample, "test", "test/00000", "bird 0")] * 7).size
        (1194, 462)
    """
    columns = min(COLUMNS, len(tiles))
    rows = math.ceil(len(tiles) / columns)
    size = (columns * (TILE + GAP) + GAP, rows * (TILE + CAPTION + GAP) + GAP)
    sheet = Image.new("RGB", size, (255, 255, 255))
    write = ImageDraw.Draw(sheet)
    for number, tile in enumerate(tiles):
        x = GAP + number % columns * (TILE + GAP)
        y = GAP + number // columns * (TILE + CAPTION + GAP)
        sheet.paste(plot_sample(tile.sample, TILE), (x, y))
        for line, (head, text) in enumerate(((f"{tile.split}: ", tile.sample_id), ("", tile.text))):
            write.text((x, y + TILE + 2 + 13 * line), _fitting(write, head, text), fill=(0, 0, 0))
    return sheet


def _fitting(draw: ImageDraw.ImageDraw, head: str, text: str) -> str:
    """Head and text, the beginning of the text cut off until both are as narrow as a tile."""
    line = " ".join(text.splitlines())  # Pillow measures single lines only
    line = line.encode("latin-1", "replace").decode("latin-1")  # what its own font has
    while draw.textlength(head + line) > TILE:
        line = f"...{line[4:]}"
    return head + line
