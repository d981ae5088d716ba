"""Files of data sets: the official folder, tables in UTF-8, and images decoded completely."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from datamodules.photos.problems import SHOWN

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")  # Pillow hands others to programs, as EPS to Ghostscript


def locate(root: str | Path, folder: str, marker: str | Sequence[str], remedy: str) -> Path:
    """Find the official folder of a data set: ``root`` itself or ``root/folder``.

    Returns:
        The folder that holds a ``marker``.

    Raises:
        FileNotFoundError: saying what lies there instead, and where the data is if ``root`` is one level off.
    """
    root = Path(root).expanduser()
    markers = [marker] if isinstance(marker, str) else list(marker)

    def holds_data(place: Path) -> bool:
        return any((place / name).is_file() for name in markers)

    for candidate in (root, root / folder):
        if holds_data(candidate):
            return candidate
    if not root.is_dir():
        raise FileNotFoundError(f"Expected argument `root` to be a folder, but there is none at {root}. {remedy}")
    entries = sorted(path.name for path in root.iterdir())
    near = [root.resolve().parent, *(root / name for name in entries)]
    candidates = [place for place in near if holds_data(place) or holds_data(place / folder)]
    holds = ", ".join(entries[:SHOWN]) + (", ..." if len(entries) > SHOWN else "") if entries else "nothing"
    advice = f"The data is one level off: use `--data.root {candidates[0]}`." if candidates else remedy
    raise FileNotFoundError(
        f"Expected argument `root` to hold {folder}/{markers[0]}, but {root} holds {holds}. {advice}"
    )


def read_text(path: Path) -> str:
    """The content of a table in UTF-8, with or without a byte order mark.

    Raises:
        ValueError: if it is in another encoding, or no regular file, with the path.
    """
    try:
        return regular(path).read_text(encoding="utf-8-sig")
    except ValueError as error:
        raise ValueError(f"Expected {path} to be text in UTF-8, but it is not ({error}). Unpack it again.") from error


def regular(path: Path) -> Path:
    """The path itself if it is a regular file; a pipe or a device could be read for ever.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is something else, without the path.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("it is a folder, a pipe or a device")
    return path


def open_image(path: Path) -> Image.Image:
    """An image of the formats of photos, whatever its name says; its pixels are not read yet.

    Raises:
        OSError: if it is no such image, or there is no such file.
        ValueError: if it is not a regular file.
    """
    return Image.open(regular(path), formats=FORMATS)


def decode_image(path: Path, mode: Literal["RGB", "L"] = "RGB", upright: bool = False) -> NDArray[np.uint8]:
    """Decode an image file completely (Pillow: OpenCV returns a picture for truncated files without a word).

    Grey, palette and CMYK images become RGB, transparency is dropped, 16 bits are cut to the upper 8.

    Args:
        path: the file.
        mode: ``RGB``, or ``L`` for masks.
        upright: turn it as its EXIF tag says; the points and boxes of data sets count pixels as they are stored.

    Returns:
        ``(H, W, 3)`` or ``(H, W)`` uint8, writable.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it cannot be decoded, with the path and the decoder's words.
    """
    try:
        with open_image(path) as image:
            pixels = _eight_bits(image)
            pixels = ImageOps.exif_transpose(pixels) if upright else pixels
            return np.array(pixels if pixels.mode == mode else pixels.convert(mode))  # convert always copies
    except FileNotFoundError:
        raise
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        words = "the file is empty" if path.is_file() and path.stat().st_size == 0 else str(error)
        raise ValueError(
            f"Expected {path} to be an image, but it cannot be decoded: {words}. Replace the file; a data set leaves "
            "it out if `exclude` lists its id."
        ) from error


def _eight_bits(image: Image.Image) -> Image.Image:
    """The image with 8 bits per channel; Pillow itself would clip larger grey values to white."""
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG"):  # Pillow 10 says I for both
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError("it has 32 bits per pixel, whose range is not known; save it with 8 bits per channel")
    return image
