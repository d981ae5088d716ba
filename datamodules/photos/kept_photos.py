"""Photos that are decoded, cropped and resized once, and kept on the disk for later epochs and runs."""

from __future__ import annotations

import hashlib
import inspect
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import ImageFile, features

from protometry.datamodules.photos import files
from protometry.datamodules.photos.cache import stamp
from protometry.datamodules.transforms import crop_and_augment, placement
from protometry.datamodules.transforms.crop_and_augment import PhotoTransform
from protometry.run_folder.kept_rows import KeptRows

_SIZE = 8  # bytes of a row before the pixels


class KeptPhotos:
    """Photos as a model sees them before any augmentation, as uint8 in :class:`.KeptRows`, for one transform.

    A photo is known by its file (:func:`.stamp`) and, where photos are cut to boxes, its box, so that a photo that is
    changed or replaced is decoded again, as is one that is moved. Other code of a decoder or a transform, of Pillow or
    of OpenCV, or another kind of processor, has a folder of its own.

    Args:
        cache: the folder that holds one folder per transform; it is made with the first photo.
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
        self._shape = (*transform.size, 3)
        self._cropped = transform.crop == "box"
        settings = transform.size, transform.geometry, transform.crop, transform.resize_filter, upright
        digest = hashlib.sha256(repr((_code(), settings)).encode()).hexdigest()[:16]
        self._rows = KeptRows(cache / "photos" / digest, _SIZE + self.bytes_per_photo, "Photos")

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def folder(self) -> Path:
        """Where they lie."""
        return self._rows.folder

    @property
    def bytes_per_photo(self) -> int:
        """Size of the pixels of one photo."""
        return int(np.prod(self._shape))

    def key(self, path: Path, box: NDArray[np.float64] | None) -> bytes:
        """What a photo is known by, as long as nobody changes it.

        Raises:
            OSError: if there is no such file.
        """
        cut = box.tolist() if self._cropped and box is not None else None
        return hashlib.sha256(repr((stamp(path), cut)).encode()).digest()

    def find(self, key: bytes) -> tuple[tuple[int, int], NDArray[np.uint8]] | None:
        """The height and width of a photo, and its pixels ``(H, W, 3)`` in the frame; None if it is new."""
        if key not in self._rows:
            self._rows.reload()
        row = np.empty(self._rows.row_bytes, np.uint8)
        if not self._rows.read(key, row.data):
            return None
        height, width = row[:_SIZE].view("<u4").tolist()
        return (height, width), row[_SIZE:].reshape(self._shape)

    def keep(self, key: bytes, size: tuple[int, int], pixels: NDArray[np.uint8]) -> None:
        """Keep the pixels of a photo of some height and width."""
        self._rows.keep([(key, np.array(size, "<u4").tobytes() + pixels.tobytes())])


def _code() -> list[object]:
    """All that makes pixels of a file, but for the settings of a transform."""
    ours = [inspect.getsource(module) for module in (files, crop_and_augment, placement)]
    pillow = [features.version(name) for name in ("pil", "jpg", "libjpeg_turbo", "webp", "libtiff", "zlib")]
    pillow.append(files.HEIF)
    opencv = cv2.getBuildInformation(), cv2.getCPUFeaturesLine(), cv2.useOptimized()
    return [*ours, *pillow, ImageFile.LOAD_TRUNCATED_IMAGES, *opencv]
