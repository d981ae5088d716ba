"""Data sets that lie in files: finding the folder, decoding, and one error that lists everything that is wrong.

Folders are only read. What was verified is remembered in the cache folder, never beside the data.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from datamodules.photos.cache import cache_folder, recall, remember

Verify = Literal["decode", "header", "none"]
SHOWN = 5


class Problems:
    """Collects everything that is wrong with a data set, to say it in one error.

    Args:
        what: the data set and its folder.
        remedy: what to do about it.

    Example:
        >>> problems = Problems("toy data in /data", "Download it again.")
        >>> problems.wrong("a.txt is empty")
        >>> problems.raise_any()
        Traceback (most recent call last):
            ...
        ValueError: Expected toy data in /data to be complete and consistent, but got 1 problem:
          a.txt is empty
        Download it again.
    """

    def __init__(self, what: str, remedy: str) -> None:
        self._what = what
        self._remedy = remedy
        self._texts: list[str] = []
        self._missing = False

    def wrong(self, text: str) -> None:
        """Note a problem."""
        self._texts.append(text)

    def missing(self, text: str) -> None:
        """Note a file that is not there; the error becomes a ``FileNotFoundError``."""
        self._missing = True
        self._texts.append(text)

    def raise_any(self) -> None:
        """Raise one error that counts the problems and shows the first five, if there are any.

        Raises:
            FileNotFoundError: if a file is missing.
            ValueError: if everything is there but something is wrong.
        """
        if not self._texts:
            return
        count = len(self._texts)
        shown = "".join(f"\n  {text}" for text in self._texts[:SHOWN])
        more = f"\n  ... and {count - SHOWN} more" if count > SHOWN else ""
        text = (
            f"Expected {self._what} to be complete and consistent, but got {count} problem{'s' * (count > 1)}:"
            f"{shown}{more}\n{self._remedy}"
        )
        raise FileNotFoundError(text) if self._missing else ValueError(text)


@dataclass(frozen=True)
class ImageFile:
    """One image of a data set; a subclass may have more to check.

    Args:
        sample_id: its id.
        path: where it lies.
        mask: its object mask, or None.
    """

    sample_id: str
    path: Path
    mask: Path | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files of the image."""
        return (self.path,) if self.mask is None else (self.path, self.mask)

    def absent(self, path: Path) -> str:
        """What to say of one of the files that is not there."""
        return f"there is no file {path}"

    def fault(self, verify: Verify) -> str:
        """What is wrong with the files, which exist, or an empty string.

        Args:
            verify: ``decode`` or ``header``, see :func:`verify_images`.

        Raises:
            ValueError: if a file cannot be read.
        """
        size = picture_size(self.path, verify)
        if self.mask is None or (mask_size := picture_size(self.mask, verify, "L")) == size:
            return ""
        return (
            f"{self.path} has {size[0]}x{size[1]} pixels (width x height), but its mask {self.mask} has "
            f"{mask_size[0]}x{mask_size[1]}"
        )


def locate(root: str | Path, folder: str, marker: str | Sequence[str], remedy: str) -> Path:
    """Find the official folder of a data set: ``root`` itself or ``root/folder``.

    Args:
        root: what the user gave.
        folder: official name of the folder.
        marker: a file that lies in it, or several of which one does.
        remedy: how to get the data.

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
    found = [place for place in near if holds_data(place) or holds_data(place / folder)]
    holds = ", ".join(entries[:SHOWN]) + (", ..." if len(entries) > SHOWN else "") if entries else "nothing"
    advice = f"The data is one level off: use `--data.root {found[0]}`." if found else remedy
    raise FileNotFoundError(
        f"Expected argument `root` to hold {folder}/{markers[0]}, but {root} holds {holds}. {advice}"
    )


def _eight_bits(image: Image.Image) -> Image.Image:
    """The image with 8 bits per channel; Pillow itself would clip larger grey values to white."""
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG"):  # Pillow 10 says I for both
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError("it has 32 bits per pixel, whose range is not known; save it with 8 bits per channel")
    return image


def read_text(path: Path) -> str:
    """The content of a table in UTF-8, with or without a byte order mark.

    Raises:
        ValueError: if it is in another encoding, with the path.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"Expected {path} to be text in UTF-8, but it is not ({error}). Unpack it again.") from error


def decode_image(path: Path, mode: Literal["RGB", "L"] = "RGB") -> NDArray[np.uint8]:
    """Decode an image file completely (Pillow: OpenCV returns a picture for truncated files without a word).

    Grey, palette and CMYK images become RGB, transparency is dropped, 16 bits are cut to the upper 8.

    Args:
        path: the file.
        mode: ``RGB``, or ``L`` for masks.

    Returns:
        ``(H, W, 3)`` or ``(H, W)`` uint8, writable.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it cannot be decoded, with the path and the decoder's words.
    """
    try:
        with Image.open(path) as image:
            shown = _eight_bits(image)
            return np.array(shown if shown.mode == mode else shown.convert(mode))  # convert always copies
    except FileNotFoundError:
        raise
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        words = "the file is empty" if path.stat().st_size == 0 else str(error)
        raise ValueError(
            f"Expected {path} to be an image, but it cannot be decoded: {words}. Replace the file or list its id in "
            "`exclude`."
        ) from error


def verify_images(files: Sequence[ImageFile], verify: Verify, num_workers: int, problems: Problems) -> None:
    """Check that every image and mask is there and readable, once for this exact list of (path, size, mtime).

    Args:
        files: the images.
        verify: ``decode`` reads every pixel (about 2 ms per photo and core), ``header`` only the size, ``none`` only
            looks whether the file is there.
        num_workers: processes that share the work.
        problems: where findings are noted.

    Raises:
        ValueError: if ``verify`` is unknown.
    """
    if verify not in get_args(Verify):
        raise ValueError(f"Expected argument `verify` to be one of {list(get_args(Verify))}, but got {verify!r}.")
    present = []
    digest = hashlib.sha256(verify.encode())
    for file in files:
        stamps = [_stamp(path) for path in file.paths]
        if None in stamps:
            problems.missing(f"image {file.sample_id}: {file.absent(file.paths[stamps.index(None)])}")
            continue
        present.append(file)
        digest.update("\n".join([repr(file), *(stamp for stamp in stamps if stamp)]).encode())
    remembered = cache_folder() / "verified" / digest.hexdigest()
    if verify == "none" or recall(remembered) is not None:
        return
    checks = _Checks(present, verify)
    loader = DataLoader(checks, batch_size=64, num_workers=num_workers, collate_fn=list)
    found = [text for texts in loader for text in texts if text]
    for text in found:
        problems.wrong(text)
    if len(present) == len(files) and not found:
        remember(remembered, b"")


class _Checks(Dataset[str]):
    """Item i is what is wrong with file i, or an empty string."""

    def __init__(self, files: Sequence[ImageFile], verify: Verify) -> None:
        self._files = files
        self._verify = verify

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> str:
        file = self._files[index]
        try:
            fault = file.fault(self._verify)
        except ValueError as error:
            fault = str(error)
        return f"image {file.sample_id}: {fault}" if fault else ""


def picture_size(path: Path, verify: Verify, mode: Literal["RGB", "L"] = "RGB") -> tuple[int, int]:
    """Width and height of a picture, from all of its pixels or from its header.

    Args:
        path: the file.
        verify: ``decode`` or ``header``.
        mode: see :func:`decode_image`.

    Raises:
        ValueError: if it cannot be read.
    """
    if verify == "decode":
        height, width = decode_image(path, mode).shape[:2]
        return width, height
    try:
        with Image.open(path) as image:
            return image.size
    except (OSError, Image.DecompressionBombError) as error:
        raise ValueError(f"{path} is not an image: {error}") from error


def _stamp(path: Path) -> str | None:
    try:
        status = path.stat()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):  # no such file, or a link to itself
            return None
        raise
    return f"{path.absolute()}\t{status.st_size}\t{status.st_mtime_ns}"
