"""The check that the images of a data set are there, can be read and are those the tables are about."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from protometry.datamodules.arguments import check_choice
from protometry.datamodules.dataset import Mapped
from protometry.datamodules.photos.alike import equal_photos, miniature
from protometry.datamodules.photos.cache import cache_folder, recall, remember, stamp
from protometry.datamodules.photos.files import decode_image, open_image
from protometry.datamodules.photos.problems import Problems
from protometry.datamodules.sample import nfc
from protometry.datamodules.workers import WorkerLoader

Verify = Literal["decode", "header", "none"]
VERSION = 5  # part of the cache key: change it whenever more is refused
BEYOND = 0.25  # of a side that a box may exceed; those of CUB-200-2011 exceed 0.07 at most
TOLERANCE = 1.0  # pixels; visible points of CUB-200-2011 keep at least 7 from every side


class Mark(NamedTuple):
    """A box or point that a table marks on a photo; one outside it shows that the table is about other photos.

    Args:
        what: table and row that say so.
        corners: inclusive pixels x0, y0, x1, y1, which must overlap the photo.
    """

    what: str
    text: str
    corners: tuple[float, float, float, float]

    @classmethod
    def box(cls, what: str, corners: NDArray[np.float64]) -> Mark:
        """A box, ``(4,)`` inclusive pixels x0, y0, x1, y1, which may exceed the photo but not miss it."""
        x0, y0, x1, y1 = corners.tolist()
        return cls(what, f"{x0:g} {y0:g} {x1:g} {y1:g}", (x0, y0, x1, y1))

    @classmethod
    def point(cls, what: str, point: NDArray[np.float64]) -> Mark:
        """A point, ``(2,)`` x, y in pixels, which may lie a pixel outside the photo."""
        x, y = point.tolist()
        return cls(what, f"{x:g} {y:g}", (x - TOLERANCE, y - TOLERANCE, x + TOLERANCE, y + TOLERANCE))


@dataclass(frozen=True)
class ImageFile:
    """One image of a data set; a subclass may have more to check.

    Args:
        sample_id: its id; kept in the form :func:`.nfc`.
        marks: boxes and visible points that must lie on it.
        sources: what names the image and what holds its mask, for the message that one is not there.
    """

    sample_id: str
    path: Path
    mask: Path | None = None
    marks: tuple[Mark, ...] = ()
    sources: tuple[str, str] = ("", "")

    def __post_init__(self) -> None:
        object.__setattr__(self, "sample_id", nfc(self.sample_id))

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files of the image."""
        return (self.path,) if self.mask is None else (self.path, self.mask)

    @property
    def remedy(self) -> str:
        """What to do if one of the files cannot be read."""
        return f"Replace the file, or list {self.sample_id!r} in `exclude`."

    def absent(self, path: Path) -> str:
        """What to say of one of the files that is not there."""
        source = self.sources[path == self.mask]
        return f"there is no file {path}" + (f"; {source}" if source else "")

    def fault(self, verify: Verify) -> str:
        """What is wrong with the files, which exist, or the first mark that lies outside, or an empty string.

        Raises:
            ValueError: if a file cannot be read.
        """
        width, height = picture_size(self.path, verify)
        if min(width, height) < 2:
            return f"{self.path} has {width}x{height} pixels (width x height), which show nothing. {self.remedy}"
        if self.mask is not None and (mask_size := picture_size(self.mask, verify, "L")) != (width, height):
            return (
                f"{self.path} has {width}x{height} pixels (width x height), but its mask {self.mask} has "
                f"{mask_size[0]}x{mask_size[1]}"
            )
        for mark in self.marks:
            x0, y0, x1, y1 = mark.corners
            if x0 >= width or y0 >= height or x1 < 0 or y1 < 0:
                return (
                    f"{mark.what} ({mark.text}) lies outside the {width}x{height} pixels (width x height) of "
                    f"{self.path}; use the photos that the tables are about"
                )
            if max(-x0 / width, -y0 / height, x1 / width - 1, y1 / height - 1) > BEYOND:
                return (
                    f"{mark.what} ({mark.text}) reaches far beyond the {width}x{height} pixels (width x height) of "
                    f"{self.path}; use the photos that the tables are about, and pixels of theirs"
                )
        return ""


def verify_images(files: Sequence[ImageFile], verify: Verify, num_workers: int, problems: Problems) -> list[list[str]]:
    """Check that every image and mask is there and readable, once for these files as they are, see :func:`.stamp`.

    Args:
        files: the images.
        verify: ``decode`` reads every pixel (about 2 ms per photo and core), ``header`` only the size, ``none`` only
            looks whether the file is there.
        num_workers: processes that share the work.
        problems: where findings are noted.

    Returns:
        The ids of images that show the same (:func:`.equal_photos`), where every pixel is read.

    Raises:
        ValueError: if ``verify`` is unknown.
    """
    check_choice("verify", verify, get_args(Verify))
    present = []
    digest = hashlib.sha256(f"{verify} {VERSION}".encode())
    for file in files:
        stamps = [_stamp(path) for path in file.paths]
        if None in stamps:
            problems.missing(f"image {file.sample_id}: {file.absent(file.paths[stamps.index(None)])}")
            continue
        present.append(file)
        digest.update("\n".join([repr(file), *(stamp for stamp in stamps if stamp)]).encode())
    remembered = cache_folder() / "verified" / digest.hexdigest()
    if verify == "none":
        return []
    with contextlib.suppress(ValueError):  # nothing is remembered, or less than now
        known: list[list[str]] = json.loads(recall(remembered) or b"")
        return known
    checks = Mapped(partial(_looked_at, verify), present)
    own = torch.Generator()  # no draw from the generator that makes the weights of a model
    loader = WorkerLoader(checks, batch_size=64, num_workers=num_workers, collate_fn=list, generator=own)
    found = [result for results in loader for result in results]
    complaints = [text for text, _, _ in found if text]
    for text in complaints:
        problems.wrong(text)
    equal = equal_photos([(file.sample_id, *seen) for file, (_, *seen) in zip(present, found, strict=True) if seen[0]])
    if len(present) == len(files) and not complaints:
        remember(remembered, json.dumps(equal).encode())
    return equal


def _looked_at(verify: Verify, file: ImageFile) -> tuple[str, str, bytes]:
    """What is wrong with an image, and the hash of its pixels and a miniature, where they are read."""
    pixels, small = "", b""
    try:
        fault = file.fault(verify)
        if verify == "decode" and not fault:
            image = _decoded(file.path, "RGB")
            pixels = hashlib.sha256(f"{image.shape}".encode() + image.tobytes()).hexdigest()
            small = miniature(image)
    except ValueError as error:
        fault = f"{error} {file.remedy}"
    finally:
        _decoded.cache_clear()
    return f"image {file.sample_id}: {fault}" if fault else "", pixels, small


@lru_cache(2)
def _decoded(path: Path, mode: Literal["RGB", "L"]) -> NDArray[np.uint8]:
    """The pixels of an image and its mask, kept while they are looked at."""
    return decode_image(path, mode)


def picture_size(path: Path, verify: Verify, mode: Literal["RGB", "L"] = "RGB") -> tuple[int, int]:
    """Width and height of a picture, from all of its pixels or from its header.

    Raises:
        ValueError: if it cannot be read.
    """
    if verify == "decode":
        height, width = _decoded(path, mode).shape[:2]
        return width, height
    try:
        with open_image(path) as image:
            return image.size
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{path} is not an image: {error}.") from error


def _stamp(path: Path) -> str | None:
    try:
        return repr(stamp(path))
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):  # no such file, or a link to itself
            return None
        raise
