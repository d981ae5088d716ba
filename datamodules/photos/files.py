"""Files of data sets: the official folder, tables in UTF-8, and images decoded completely."""

from __future__ import annotations

import struct
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path, PurePath
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageFile
from torch import Tensor

from protometry.datamodules.photos.problems import first_few
from protometry.datamodules.sample import nfc
from protometry.run_folder.command_line.messages import requires
from protometry.run_folder.command_line.user_path import regular, user_path

try:  # an optional package
    import pillow_heif

    pillow_heif.register_heif_opener()
    HEIF: str | None = pillow_heif.__version__
except ImportError:
    HEIF = None
HEIC = (".heic", ".heif")  # of phones
HEIC_REMEDY = requires("heic", "pillow-heif")
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", *(("HEIF",) if HEIF else ()))  # Pillow runs programs for others
MAX_PIXELS = 160_000_000  # more than any camera makes; decoding takes up to ten bytes for each
TURNS: dict[Any, Image.Transpose] = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}  # by the orientation in EXIF
SAVE_AGAIN = "Save it again in this encoding; spreadsheets call it `CSV UTF-8`."  # what to do with a table of one's own
DARK = 64  # of 256; files of 16 bits with the values of a scanner or camera of 12 or 14 stay below


def folders_below(root: Path) -> list[Path]:
    """The folders in a folder and in these, by name; none of those that are hidden or cannot be read."""

    def inside(place: Path) -> list[Path]:
        with suppress(OSError):
            return sorted(path for path in place.iterdir() if path.is_dir() and not path.name.startswith("."))
        return []

    return [*inside(root), *(deeper for place in inside(root) for deeper in inside(place))]


def locate(root: str | Path, folder: str, marker: str | Sequence[str], remedy: str) -> Path:
    """The folder of a data set that holds a ``marker``: ``root`` itself or ``root/folder``.

    Raises:
        FileNotFoundError: saying what lies there instead, and where the data is if it is above ``root`` or up to two
            levels below.
    """
    root = user_path(root)
    markers = [marker] if isinstance(marker, str) else list(marker)

    def holds_data(place: Path) -> bool:
        return any((place / name).is_file() for name in markers)

    for candidate in (root, root / folder):
        if holds_data(candidate):
            return candidate
    if not root.is_dir():
        raise FileNotFoundError(f"Expected argument `root` to be a folder, but there is none at {root}. {remedy}")
    holds = first_few(sorted(path.name for path in root.iterdir()))
    near = [*folders_below(root), *root.resolve().parents]
    candidates = [place for place in near if holds_data(place) or holds_data(place / folder)]
    advice = f"The data is at another level: use `root: {candidates[0]}`." if candidates else remedy
    raise FileNotFoundError(
        f"Expected argument `root` to hold {folder}/{markers[0]}, but {root} holds {holds}. {advice}"
    )


def on_disk(folder: Path, name: str) -> Path:
    """The file that a table names, whichever way the disk encodes the letters of its name (see :func:`.nfc`)."""
    spellings = [name] if name.isascii() else [name, nfc(name), unicodedata.normalize("NFD", name)]
    return next((folder / path for path in spellings if (folder / path).exists()), folder / name)


def read_text(path: Path, remedy: str = "Unpack it again.") -> str:
    """The content of a table in UTF-8, with or without a byte order mark; ``remedy`` says what to do if it is not.

    Raises:
        ValueError: if it is in another encoding, or no regular file, with the path.
    """
    try:
        return regular(path).read_text(encoding="utf-8-sig")
    except ValueError as error:
        raise ValueError(f"Expected {path} to be text in UTF-8, but it is not ({error}). {remedy}") from error


def delimiter_of(text: str) -> str:
    r"""What separates the cells of a table: what its first line has most of, a comma where there is none.

    Example:
        >>> delimiter_of("class;red, dark;big\nwren;1;0"), delimiter_of("class")
        (';', ',')
    """
    return max(",;\t", key=text.partition("\n")[0].count)


class TooManyPixelsError(ValueError):
    """A photo is larger than it may be."""


def open_image(path: Path | BytesIO, max_pixels: int = MAX_PIXELS) -> ImageFile.ImageFile:
    """An image of the formats of photos, a file or its content, whatever its name says; its pixels are not read yet.

    Raises:
        OSError: if it is no such image, or there is no such file.
        ValueError: if it is not a regular file, or has more than ``max_pixels``, as :class:`TooManyPixelsError`.
    """
    with _pillows_limit(None):  # which warns of the photos of some cameras
        image = Image.open(regular(path) if isinstance(path, Path) else path, formats=FORMATS)
    if image.width * image.height > max_pixels:
        image.close()
        raise TooManyPixelsError(
            f"it has {image.width}x{image.height} pixels (width x height), more than `max_pixels` ({max_pixels:,}); "
            "shrink it"
        )
    image.filename = ""  # else Pillow maps TIFF into memory, and garbles what its tag turns
    return image


def decode_image(
    path: Path, mode: Literal["RGB", "L"] = "RGB", upright: bool = False, max_pixels: int = MAX_PIXELS
) -> NDArray[np.uint8]:
    """Decode an image file completely (Pillow: OpenCV returns a picture for truncated files without a word).

    Grey, palette and CMYK images become RGB, what is transparent shows white, 16 bits are cut to the upper 8. Masks
    lose their transparency.

    Returns:
        ``(H, W, 3)`` or ``(H, W)`` uint8, writable.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it cannot be decoded, with the path and the decoder's words; what to do depends on the caller.
    """
    try:
        with open_image(path, max_pixels) as image, _pillows_limit(max_pixels):
            return pixels_of(image, mode, upright)
    except FileNotFoundError:
        raise
    except (OSError, SyntaxError, ValueError, MemoryError, Image.DecompressionBombError) as error:
        words = str(error) or "it does not fit into memory"
        if path.is_file() and path.stat().st_size == 0:
            words = "the file is empty"
        elif HEIF is None and path.suffix.lower() in HEIC:
            words = f"photos in HEIC are not read. {HEIC_REMEDY.removesuffix('.')}"
        raise ValueError(f"Expected {path} to be an image, but it cannot be decoded: {words}.") from error


def pixels_of(image: Any, mode: Literal["RGB", "L"] = "RGB", upright: bool = False) -> NDArray[np.uint8]:
    """The pixels of an image of Pillow, as :func:`decode_image` has them, or of an array, which is RGB.

    Args:
        image: of Pillow; or uint8 of NumPy ``(H, W[, 3])`` or torch ``(1 or 3, H, W)``.
        mode: of the result, for an image of Pillow.
        upright: whether to turn an image of Pillow by its EXIF tag.

    Raises:
        OSError: if it comes from a file that is damaged.
        ValueError: if it is something else, or its range is not known.
    """
    if not isinstance(image, Image.Image):
        return _pixels_of_array(image)
    pixels = _eight_bits(image)
    pixels = on_white(pixels) if mode == "RGB" else pixels
    turn = _turn(image) if upright else None
    pixels = pixels if turn is None else pixels.transpose(turn)
    return np.array(pixels if pixels.mode == mode else pixels.convert(mode))  # convert always copies


def _pixels_of_array(image: Any) -> NDArray[np.uint8]:
    array = image.movedim(0, -1).numpy() if isinstance(image, Tensor) and image.ndim == 3 else np.asarray(image)
    if array.ndim >= 2 and array.size == np.prod(array.shape[:2]):
        array = np.repeat(array.reshape(*array.shape[:2], 1), 3, axis=2)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3 or not array.size:
        encoded = isinstance(image, bytes | str | PurePath | Mapping)
        remedy = " Decode it first, as `PIL.Image.open` or `cast_column` of Hugging Face does." if encoded else ""
        raise ValueError(
            "Expected `image` to be a PIL image, uint8 pixels (H, W, 3) of NumPy or (3, H, W) of torch, or a float "
            f"tensor (3, H, W), but got {type(image).__name__} {array.dtype} {array.shape}.{remedy}"
        )
    return np.ascontiguousarray(array)


@contextmanager
def _pillows_limit(pixels: int | None) -> Iterator[None]:
    """Another limit than Pillow's own, which is the same for all files."""
    usual, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, pixels
    try:
        yield
    finally:
        Image.MAX_IMAGE_PIXELS = usual


def _eight_bits(image: Image.Image) -> Image.Image:
    """The image with 8 bits per channel; Pillow itself would clip larger grey values to white."""
    tile = getattr(image, "tile", "")  # of a file
    sixteen = image.format in ("PNG", "TIFF") and ";16" in str(tile)  # Pillow reads the upper 8 of colours
    image.load()
    pixels = image
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG"):  # Pillow 10 says I for both
        sixteen, pixels = True, Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise ValueError("it has 32 bits per pixel, whose range is not known; save it with 8 bits per channel")
    if sixteen and np.asarray(pixels.convert("RGB")).max() < DARK:
        raise ValueError(
            "it uses less than a quarter of the range of 16 bits, so that it would be nearly black; save it with 8 "
            "bits per channel"
        )
    return pixels


def on_white(image: Image.Image) -> Image.Image:
    """An image as a viewer shows it: whatever colours a file holds where it is transparent, they are not seen."""
    if not image.has_transparency_data:
        return image
    colours, white = image.convert("RGBA"), Image.new("RGB", image.size, "white")
    white.paste(colours, mask=colours)
    return white


def _turn(image: Image.Image) -> Image.Transpose | None:
    """What turns an image upright, by its EXIF tag; those that cannot be read turn nothing, as in viewers."""
    try:
        return TURNS.get(image.getexif().get(ExifTags.Base.Orientation))
    except (SyntaxError, ValueError, struct.error):
        return None
