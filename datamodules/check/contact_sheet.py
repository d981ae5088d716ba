"""The contact sheet of a check: many samples with everything that is annotated on them in one picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image

from protometry.datamodules.plot import plot_sample
from protometry.datamodules.sample import Sample
from protometry.run_folder.text_in_pictures import width_of, write_text

TILE = 192
CAPTION, LETTERS = 30, 11
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
    for number, tile in enumerate(tiles):
        x = GAP + number % columns * (TILE + GAP)
        y = GAP + number // columns * (TILE + CAPTION + GAP)
        sheet.paste(plot_sample(tile.sample, TILE), (x, y))
        for line, (head, text) in enumerate(((f"{tile.split}: ", tile.sample_id), ("", tile.text))):
            write_text(sheet, (x, y + TILE + 2 + 13 * line), _fitting(head, text), LETTERS)
    return sheet


def _fitting(head: str, text: str) -> str:
    """Head and text, the beginning of the text cut off until both are as narrow as a tile: the end of ids differs."""
    text = " ".join(text.splitlines())
    while width_of(head + text, LETTERS) > TILE:
        text = f"…{text[2:]}"
    return head + text
