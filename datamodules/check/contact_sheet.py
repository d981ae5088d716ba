"""A picture of many samples with everything that is annotated on them, to see at a glance whether data is right."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from datamodules.bird_parts import RGB
from datamodules.pixels import image_pixels
from datamodules.sample import Sample

TILE = 192
CAPTION = 30
GAP = 6
BOX_COLOR: RGB = (255, 210, 0)
MASK_COLOR: RGB = (255, 0, 200)
PART_OPACITY = 0.45


@dataclass(frozen=True)
class Tile:
    """One sample on the sheet.

    Args:
        sample: what is drawn.
        title: first line below it, such as its split and id.
        text: second line, such as its class.
    """

    sample: Sample
    title: str
    text: str


def contact_sheet(tiles: Sequence[Tile], columns: int = 6) -> Image.Image:
    """Draw samples in rows.

    Args:
        tiles: the samples.
        columns: samples per row.

    Returns:
        An RGB picture; boxes yellow, outlines of masks pink, parts of label maps and points each in a colour of its
        own.

    Raises:
        ValueError: if there are no samples.

    Example:
        >>> from datamodules import SketchBirds
        >>> sample = SketchBirds("tiny").dataset("test")[0]
        >>> contact_sheet([Tile(sample, "test/00000", "bird 0")] * 3, columns=2).size
        (402, 462)
    """
    if not tiles:
        raise ValueError("Expected argument `tiles` to hold samples, but got none.")
    columns = min(columns, len(tiles))
    rows = math.ceil(len(tiles) / columns)
    size = (columns * (TILE + GAP) + GAP, rows * (TILE + CAPTION + GAP) + GAP)
    sheet = Image.new("RGB", size, (255, 255, 255))
    write = ImageDraw.Draw(sheet)
    for number, tile in enumerate(tiles):
        x = GAP + number % columns * (TILE + GAP)
        y = GAP + number // columns * (TILE + CAPTION + GAP)
        sheet.paste(draw_sample(tile.sample), (x, y))
        for line, text in enumerate((tile.title, tile.text)):
            write.text((x, y + TILE + 2 + 13 * line), _fitting(write, text), fill=(0, 0, 0))
    return sheet


def draw_sample(sample: Sample) -> Image.Image:
    """One sample with its box, points, mask and label map, its longer side ``TILE`` pixels.

    Returns:
        An RGB picture of ``TILE`` x ``TILE`` pixels, grey where the sample leaves room.
    """
    pixels = image_pixels(sample["image"]).numpy()
    scale = TILE / max(pixels.shape[:2])
    size = (round(pixels.shape[1] * scale), round(pixels.shape[0] * scale))
    image = _resized(pixels, size, Image.Resampling.NEAREST if scale > 1 else Image.Resampling.BOX)
    if "label_map" in sample:
        image = _with_parts(image, _resized(sample["label_map"].numpy(), size, Image.Resampling.NEAREST))
    if "object_mask" in sample:
        mask = _resized(sample["object_mask"].to(torch.uint8).numpy(), size, Image.Resampling.NEAREST)
        image[_outline(mask > 0)] = MASK_COLOR
    canvas = Image.new("RGB", (TILE, TILE), (225, 225, 225))
    canvas.paste(Image.fromarray(image))
    draw = ImageDraw.Draw(canvas)
    if "bounding_box" in sample:
        x0, y0, x1, y1 = sample["bounding_box"].tolist()
        draw.rectangle((x0 * scale, y0 * scale, (x1 + 1) * scale - 1, (y1 + 1) * scale - 1), outline=BOX_COLOR)
    if "part_points" in sample:
        for number, (x, y) in enumerate((sample["part_points"] * scale).tolist()):
            if sample["part_visible"][number]:
                draw.ellipse((x - 3, y - 3, x + 3, y + 3), fill=index_color(number), outline=(0, 0, 0))
    return canvas


def index_color(index: int) -> RGB:
    """A bright colour; neighbouring indices differ clearly.

    Example:
        >>> index_color(0)
        (255, 51, 51)
    """
    red, green, blue = colorsys.hsv_to_rgb(index * 0.381966 % 1, 0.8, 1)
    return round(255 * red), round(255 * green), round(255 * blue)


def _resized(values: NDArray[np.uint8], size: tuple[int, int], how: Image.Resampling) -> NDArray[np.uint8]:
    return np.array(Image.fromarray(values).resize(size, how))


def _with_parts(image: NDArray[np.uint8], codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    palette = np.array([index_color(code) for code in range(256)])
    tinted = (1 - PART_OPACITY) * image + PART_OPACITY * palette[codes]
    return np.asarray(np.where((codes > 0)[..., None], tinted.round(), image)).astype(np.uint8)


def _outline(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Pixels of a mask with a neighbour (or the frame) outside it."""
    padded = np.pad(mask, 1)
    inner = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    return np.asarray(mask & ~inner)


def _fitting(draw: ImageDraw.ImageDraw, text: str) -> str:
    """The text, its beginning cut off until it is as narrow as a tile."""
    shown = text.encode("latin-1", "replace").decode("latin-1")  # what Pillow's own font has
    while draw.textlength(shown) > TILE:
        shown = f"...{shown[4:]}"
    return shown
