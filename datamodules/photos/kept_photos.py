"""Photos that are decoded, cropped and resized once, and kept on the disk for later epochs and runs."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import cv2
import numpy as np
from lightning.pytorch.utilities import rank_zero_warn
from numpy.typing import NDArray
from PIL import features

from protometry.datamodules.transforms.photo import PhotoTransform

VERSION = 1  # part of the name of a folder: change it whenever `decode_image` or a `Placement` gives other pixels
_PIXELS, _KEYS = ".pixels", ".keys"
_ROW = np.dtype([("key", "V32"), ("size", "<u4", 2)])


class KeptPhotos:
    """Photos as a model sees them before any augmentation, as uint8 in a folder, for one transform.

    A photo is known by its path, its size in bytes, the times at which it was changed and, where photos are cut to
    boxes, its box, so that a photo that is changed or replaced is decoded again, as is one that is moved. Another
    version of a decoder or of OpenCV, or another kind of processor, has a folder of its own.

    As for :class:`.KeptFeatures`, every process that keeps some writes two files of its own: the pixels, and then the
    keys that make them count. It may therefore be killed at any time, and processes and runs may share the folder.
    What cannot be written, such as on a full disk, is decoded again; there is one warning.

    Args:
        cache: the folder that holds one folder per transform; it is made if there is none.
        transform: its augmentation does not matter.
        upright: whether photos are turned as their EXIF tags say.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> kept = KeptPhotos(folder, PhotoTransform((2, 3)), upright=True)
        >>> key = kept.key(folder, box=None)  # of a file, usually
        >>> kept.keep(key, (40, 30), np.full((2, 3, 3), 7, np.uint8))
        >>> size, pixels = kept.find(key)
        >>> size, pixels.shape, int(pixels.max()), len(kept)
        ((40, 30), (2, 3, 3), 7, 1)
    """

    def __init__(self, cache: Path, transform: PhotoTransform, upright: bool) -> None:
        self._arguments = cache, transform, upright
        self._shape = (*transform.size, 3)
        self._cropped = transform.crop == "box"
        names = ("pil", "jpg", "libjpeg_turbo", "webp", "libtiff", "zlib")
        code = VERSION, [features.version(name) for name in names], cv2.__version__, cv2.getCPUFeaturesLine()
        settings = transform.size, transform.geometry, transform.crop, transform.resize_filter, upright
        self.folder = cache / "photos" / hashlib.sha256(repr((code, settings)).encode()).hexdigest()[:16]
        self._own = 0, ""  # process, its files
        self._writable = True
        self._rows: dict[bytes, tuple[str, int, tuple[int, int]]] = {}  # key -> files, row, size of the photo
        self._known: dict[str, int] = {}  # rows of each pair of files
        self._mapped: dict[str, NDArray[np.uint8]] = {}
        self._look()

    def __reduce__(self) -> tuple[Any, ...]:
        return KeptPhotos, self._arguments  # not what is mapped

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def bytes_per_photo(self) -> int:
        """Size of the pixels of one photo."""
        return int(np.prod(self._shape))

    def key(self, path: Path, box: NDArray[np.float64] | None) -> bytes:
        """What a photo is known by, as long as nobody changes it.

        Raises:
            OSError: if there is no such file.
        """
        status = path.stat()
        known = os.path.abspath(path), status.st_size, status.st_mtime_ns, status.st_ctime_ns
        cut = box.tolist() if self._cropped and box is not None else None
        return hashlib.sha256(repr((known, cut)).encode()).digest()

    def find(self, key: bytes) -> tuple[tuple[int, int], NDArray[np.uint8]] | None:
        """The height and width of a photo, and its pixels ``(H, W, 3)`` in the frame, read-only; None if it is new."""
        if key not in self._rows:
            self._look()
        if key not in self._rows:
            return None
        files, row, size = self._rows[key]
        if row >= len(self._mapped.get(files, ())) and not self._map(files):
            del self._rows[key]  # to be decoded again
            return None
        return size, self._mapped[files][row]

    def keep(self, key: bytes, size: tuple[int, int], pixels: NDArray[np.uint8]) -> None:
        """Keep the pixels of a photo of some height and width."""
        if not self._writable:
            return
        row = np.array((key, size), _ROW)
        try:
            files = self._own_files()
            for suffix, content in ((_PIXELS, pixels), (_KEYS, row)):
                with open(self._path(files, suffix), "ab", opener=_existing) as file:
                    file.write(content.tobytes())
        except OSError as error:
            self._writable = False  # the files may end with half a photo
            rank_zero_warn(
                f"Photos cannot be kept in {self.folder} ({error.strerror}): those that are not there are decoded "
                "again every time. Choose another `data.cache`, or null."
            )

    def _own_files(self) -> str:
        """The name of files that this process alone writes; after a fork, the copy of this object makes others."""
        process, files = self._own
        if process != os.getpid():
            self.folder.mkdir(parents=True, exist_ok=True)
            files = uuid4().hex
            for suffix in (_PIXELS, _KEYS):
                self._path(files, suffix).touch(exist_ok=False)
            self._own = os.getpid(), files
        return files

    def _map(self, files: str) -> bool:
        """Map the pixels of all keys that are known; False if somebody removed or shortened their file."""
        shape = self._known[files], *self._shape
        try:
            self._mapped[files] = np.asarray(np.memmap(self._path(files, _PIXELS), np.uint8, "r", shape=shape))
        except (OSError, ValueError):
            return False
        return True

    def _look(self) -> None:
        """Read the keys that all processes have written since the last time."""
        for path in self.folder.glob(f"*{_KEYS}"):
            start, content = self._known.get(path.stem, 0), b""
            with suppress(FileNotFoundError), path.open("rb") as file:  # somebody may remove them
                file.seek(start * _ROW.itemsize)
                content = file.read()
            rows = np.frombuffer(content, _ROW, len(content) // _ROW.itemsize)
            pairs = zip(rows["key"].tolist(), rows["size"].tolist(), strict=True)
            self._rows |= {key: (path.stem, row, tuple(size)) for row, (key, size) in enumerate(pairs, start)}
            self._known[path.stem] = start + len(rows)

    def _path(self, files: str, suffix: str) -> Path:
        return self.folder / f"{files}{suffix}"


def _existing(path: str, flags: int) -> int:
    """Open a file only if it is still there: rows are counted from the start of the first one."""
    return os.open(path, flags & ~os.O_CREAT)
