"""A picture of the colours that fill training and test images: whether a split shifts the background."""

from __future__ import annotations

import colorsys

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from datamodules.base import ImageDataModule, Split
from datamodules.dataset import ImageDataset, Spread
from datamodules.pixels import image_pixels

BINS = 36
PANELS: dict[str, Split] = {"train": "projection", "test": "test"}
HEIGHT, BAR, MARGIN, THUMBNAIL = 150, 14, 24, 70
PALE_BARS = 3
PALE_SATURATION, PALE_VALUE = 100, 100  # as in datamodules.nico.hsv_rule


def color_shares(dataset: ImageDataset) -> tuple[NDArray[np.float64], float]:
    """What share of all pixels has which hue, and what share is pale.

    Args:
        dataset: images in RGB.

    Returns:
        ``(36,)`` shares of the pixels that are not pale, by hue in steps of 10 degrees, and the share of pale ones
        (saturation up to 100 and value from 100 of 255); they sum to 1.

    Raises:
        ValueError: if there are no images.

    Example:
        >>> from datamodules import SketchBirds
        >>> hues, pale = color_shares(SketchBirds("tiny", test_size=4).dataset("test"))
        >>> int(hues.argmax()), pale < 0.2  # the fixed background is blue
        (24, True)
    """
    if len(dataset) == 0:
        raise ValueError("Expected argument `dataset` to hold images, but got none.")
    hues, pale, total = np.zeros(BINS), 0, 0
    for index in range(len(dataset)):
        pixels = image_pixels(dataset[index]["image"]).numpy()
        hsv = cv2.cvtColor(pixels, cv2.COLOR_RGB2HSV).reshape(-1, 3)
        is_pale = (hsv[:, 1] <= PALE_SATURATION) & (hsv[:, 2] >= PALE_VALUE)
        hues += np.bincount(hsv[~is_pale, 0] // (180 // BINS), minlength=BINS)
        pale += int(is_pale.sum())
        total += len(hsv)
    return hues / total, pale / total


def draw_hue_shift(data: ImageDataModule, thumbnails: int = 6) -> Image.Image:
    """Draw the colours of training and test images, one panel each, with some of the images beside it.

    Args:
        data: the data module.
        thumbnails: images per panel.

    Returns:
        An RGB picture: bars by hue, on one scale for both panels, and a grey bar for pale pixels, up to 100 %.
    """
    shares = {name: color_shares(data.dataset(split)) for name, split in PANELS.items()}
    top = max(hues.max() for hues, _ in shares.values()) or 1.0
    width = 2 * MARGIN + (BINS + PALE_BARS + 1) * BAR + thumbnails // 2 * (THUMBNAIL + 4) + MARGIN
    picture = Image.new("RGB", (width, len(PANELS) * (HEIGHT + 2 * MARGIN)), (255, 255, 255))
    draw = ImageDraw.Draw(picture)
    for number, (name, (hues, pale)) in enumerate(shares.items()):
        dataset = data.dataset(PANELS[name])
        base = (number + 1) * (HEIGHT + 2 * MARGIN) - MARGIN
        title = f"{name}: {len(dataset)} images, share of pixels by hue (full height: {top:.0%})"
        draw.text((MARGIN, base - HEIGHT - 18), title, fill=(0, 0, 0))
        for index, share in enumerate(hues):
            fill = _bright(index / BINS)
            _bar(draw, MARGIN + index * BAR, base, BAR - 2, HEIGHT * share / top, fill)
        place = MARGIN + (BINS + 1) * BAR
        _bar(draw, place, base, PALE_BARS * BAR, HEIGHT * pale, (190, 190, 190))
        draw.text((place, base + 4), f"pale {pale:.0%}", fill=(0, 0, 0))
        draw.text((MARGIN, base + 4), "hue 0", fill=(0, 0, 0))
        draw.text((MARGIN + (BINS - 2) * BAR, base + 4), "360", fill=(0, 0, 0))
        _paste_thumbnails(picture, dataset, thumbnails, (place + (PALE_BARS + 1) * BAR, base - HEIGHT))
    return picture


def _bar(draw: ImageDraw.ImageDraw, x: float, base: float, width: float, height: float, fill: tuple[int, ...]) -> None:
    draw.rectangle((x, base - height, x + width - 1, base), fill=fill)


def _bright(hue: float) -> tuple[int, ...]:
    return tuple(round(255 * channel) for channel in colorsys.hsv_to_rgb(hue, 0.75, 0.85))


def _paste_thumbnails(picture: Image.Image, dataset: ImageDataset, count: int, corner: tuple[int, int]) -> None:
    """Evenly spread images in two rows."""
    chosen = Spread(dataset, count)
    columns = max(1, count // 2)
    for index in range(len(chosen)):
        pixels = image_pixels(chosen[index]["image"]).numpy()
        tile = Image.fromarray(pixels).resize((THUMBNAIL, THUMBNAIL))
        row, column = divmod(index, columns)
        picture.paste(tile, (corner[0] + column * (THUMBNAIL + 4), corner[1] + row * (THUMBNAIL + 4)))
