"""Text in pictures, in a font that has its letters, measured and cut."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from lightning.pytorch.utilities import rank_zero_warn
from PIL import Image, ImageDraw, ImageFont


def font_of(text: str, size: int) -> ImageFont.FreeTypeFont:
    """A font of so many pixels with all letters of a text: DejaVu Sans, which comes with Matplotlib, or the system's.

    Where no font has them, DejaVu Sans shows boxes in their place, and one warning names them.
    """
    fonts, letters = _fonts(), {ord(letter) for letter in text if letter.isprintable()}
    first = next(fonts)
    if lacking := letters - _letters_of(first):
        for other in fonts:
            if letters <= _letters_of(other):
                return _opened(other, size)
        _warn_of(" ".join(map(chr, sorted(lacking))))
    return _opened(first, size)


def width_of(text: str, size: int) -> float:
    """Pixels that a line takes."""
    return font_of(text, size).getlength(text)


def cut_text(text: str, size: int, width: float) -> str:
    """The text in one line, or its first words and an ellipsis where it is wider than ``width`` pixels.

    A single word that is too wide is cut between two letters.
    """
    text = " ".join(text.splitlines())
    if width_of(text, size) <= width:
        return text
    words = text.split(" ")
    while len(words) > 1:
        words.pop()
        if width_of(shorter := f"{' '.join(words)}…", size) <= width:
            return shorter
    letters = words[0]
    while letters and width_of(f"{letters}…", size) > width:
        letters = letters[:-1]
    return f"{letters}…"


def write_text(  # noqa: PLR0913 - what, where and how
    picture: Image.Image,
    place: tuple[float, float],
    text: str,
    size: int,
    width: int | None = None,
    colour: str = "#000000",
    anchor: str | None = None,
) -> None:
    """Write a line into a picture, at its upper left corner or another anchor of Pillow's, cut at ``width`` pixels."""
    cut = cut_text(text, size, math.inf if width is None else width)
    ImageDraw.Draw(picture).text(place, cut, fill=colour, font=font_of(cut, size), anchor=anchor)


def _fonts() -> Iterator[str]:
    """Files of fonts, the system's by name."""
    import matplotlib

    yield str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf")
    yield from _system_fonts()


@cache
def _system_fonts() -> list[str]:
    from matplotlib.font_manager import findSystemFonts

    return sorted(findSystemFonts())


@cache
def _letters_of(file: str) -> frozenset[int]:
    """Those that a font has at every size, none if it cannot be read."""
    from matplotlib.ft2font import FT2Font

    try:
        font = FT2Font(file)
    except RuntimeError:
        return frozenset()
    return frozenset(font.get_charmap() if font.scalable else ())  # others are pictures of one size


_opened = cache(ImageFont.truetype)


@cache
def _warn_of(letters: str) -> None:
    rank_zero_warn(
        f"No font of this machine has {letters}, and pictures show boxes in their place: install a font that has them, "
        "such as Noto Sans CJK."
    )
