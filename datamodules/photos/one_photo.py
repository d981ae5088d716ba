"""One photo of the user, seen as a model sees the data it was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import torch

from protometry.command_line.user_path import user_path
from protometry.datamodules.base import ImageDataModule
from protometry.datamodules.dataset import image_tensor
from protometry.datamodules.photos.files import MAX_PIXELS, decode_image
from protometry.datamodules.photos.folders import is_utf8
from protometry.datamodules.sample import sample_key
from protometry.datamodules.transforms.photo import Photo, PhotoTransform


def read_photo(
    path: str | Path,
    datamodule: ImageDataModule,
    crop: Sequence[int] | None = None,
    max_pixels: int | None = None,
) -> dict[str, Any]:
    """A sample without a label: the photo, upright, through the evaluation transform of some data.

    The geometry is the data's own, or ``stretch`` where they are not photos.

    Args:
        path: of the file.
        datamodule: of the data.
        crop: x, y, width and height in pixels of the upright photo, which is cut to them first.
        max_pixels: of a photo that is read, 160 million by default.

    Returns:
        ``image`` (3, H, W) float32 in [0, 1], ``sample_id``, the name of the file, ``sample_key``, and ``uncropped``,
        whether this is a whole photo although the data are cut to boxes.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not an image or too large, or the crop does not lie on it.
    """
    path = user_path(path)
    if not path.is_file():
        raise FileNotFoundError(f"Expected argument `image` to be an image file, but there is none at {path}.")
    if not is_utf8(str(path)):
        raise ValueError(f"Expected the name of {str(path)!r} to be UTF-8, but it is not. Rename it.")
    settings: Any = datamodule.hparams
    chosen = {name: settings[name] for name in ("geometry", "variant") if name in settings}
    try:
        pixels = decode_image(path, upright=True, max_pixels=MAX_PIXELS if max_pixels is None else max_pixels)
    except ValueError as error:
        raise ValueError(f"{error} Replace the file or leave it out.") from error
    height, width = pixels.shape[:2]
    x, y, wide, high = crop or (0, 0, width, height)
    if min(x, y) < 0 or min(wide, high) < 1 or x + wide > width or y + high > height:
        raise ValueError(
            f"Expected argument `crop` to be x, y, width and height of a part of the {width}x{height} pixels (width x "
            f"height) of {path}, but got {x} {y} {wide} {high}."
        )
    try:
        framed = PhotoTransform(datamodule.image_size, **chosen)(Photo(pixels[y : y + high, x : x + wide]))
    except (MemoryError, cv2.error) as error:
        raise ValueError(
            f"Expected {path} to be resized, but its {width}x{height} pixels (width x height) do not fit into memory "
            f"({error}). Shrink it or leave it out."
        ) from error
    return {
        "image": image_tensor(torch.from_numpy(framed.image)),
        "sample_id": path.name,
        "sample_key": torch.tensor(sample_key(path.name)),
        "uncropped": crop is None and shows_crops(datamodule),
    }


def shows_crops(datamodule: ImageDataModule) -> bool:
    """Whether the photos of some data are cut to boxes (``crop: box``)."""
    return getattr(datamodule, "crop", "none") == "box"
