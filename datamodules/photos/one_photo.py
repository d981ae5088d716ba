"""One photo of the user, seen as a model sees the data it was trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from protometry.datamodules.base import ImageDataModule
from protometry.datamodules.dataset import image_tensor
from protometry.datamodules.photos.files import FORMATS, MAX_PIXELS, decode_image, open_image, pixels_of
from protometry.datamodules.photos.folders import is_utf8
from protometry.datamodules.sample import sample_key
from protometry.datamodules.transforms.crop_and_augment import Crop, Photo, PhotoTransform, PhotoVariant
from protometry.datamodules.transforms.placement import GeometryPreset
from protometry.run_folder.command_line.user_path import user_path

PhotoLike = str | Path | bytes | Image.Image | NDArray[Any] | Tensor | Mapping[str, Any]
ACCEPTED = (
    "a path, the content of a file as bytes, a PIL image, pixels as an array (H, W, 3) or a tensor (3, H, W), uint8 or "
    "float in [0, 1], or a sample of the data"
)


@dataclass(frozen=True)
class Framing:
    """How photos become the images of a model, as :class:`.PhotoTransform` takes it.

    Args:
        image_size: ``(H, W)`` pixels.
        crop: of the photos the model was trained on; those of users are cut by hand.
    """

    image_size: tuple[int, int]
    geometry: GeometryPreset = "stretch"
    variant: PhotoVariant = "paper"
    crop: Crop = "none"

    @classmethod
    def of(cls, datamodule: ImageDataModule) -> Framing:
        """That of some data; ``stretch`` where they are not photos."""
        settings: Any = datamodule.hparams
        chosen = {name: settings[name] for name in ("geometry", "variant") if name in settings}
        return cls(datamodule.image_size, **chosen, crop="box" if shows_crops(datamodule) else "none")


def read_photo(
    photo: PhotoLike,
    datamodule: ImageDataModule | Framing,
    crop: Sequence[int] | None = None,
    max_pixels: int | None = None,
) -> dict[str, Any]:
    """A sample without a label: the photo, upright, through the evaluation transform of some data.

    Args:
        photo: path of the file, or its content; a picture of Pillow; pixels, ``(H, W, 3)`` of NumPy or ``(3, H, W)`` of
            torch, uint8 or float in [0, 1]; or a sample of the data. Floats of the size of the model's input are taken
            as they are, others are rounded to 8 bits and transformed.
        datamodule: of the data, or their transform alone.
        crop: x, y, width and height in pixels of the upright photo, which is cut to them first.
        max_pixels: of a file that is read, 160 million by default.

    Returns:
        ``image`` (3, H, W) float32 in [0, 1], ``sample_id``, the name of the file, ``sample_key``, ``uncropped``,
        whether this is a whole photo although the data are cut to boxes, ``photo_size``, width and height of the
        upright photo in pixels, and ``placement``, where that photo lies in the image. The last three are missing for
        pixels that are taken as they are; a sample keeps its fields.

    Raises:
        FileNotFoundError: if there is no such file.
        TypeError: if it is of another type.
        ValueError: if it is not an image or too large, or the crop does not lie on it.
    """
    framing = datamodule if isinstance(datamodule, Framing) else Framing.of(datamodule)
    if isinstance(photo, Mapping) and "image" in photo:
        read = read_photo(photo["image"], framing, crop, max_pixels)
        known = photo if "placement" not in read else {name: photo[name] for name in ("sample_id",) if name in photo}
        return {**read, **known, "image": read["image"]}
    if (image := _floats(photo)) is not None:
        if image.shape[1:] == framing.image_size and crop is None:
            return {"image": image, "sample_id": "photo", "sample_key": torch.tensor(sample_key("photo"))}
        photo = (255 * image).round().byte()
    name, pixels = _pixels(photo, MAX_PIXELS if max_pixels is None else max_pixels)
    height, width = pixels.shape[:2]
    x, y, wide, high = crop or (0, 0, width, height)
    if min(x, y) < 0 or min(wide, high) < 1 or x + wide > width or y + high > height:
        raise ValueError(
            f"Expected argument `crop` to be x, y, width and height of a part of the {width}x{height} pixels (width x "
            f"height) of {name}, but got {x} {y} {wide} {high}."
        )
    transform = PhotoTransform(framing.image_size, framing.geometry, variant=framing.variant)
    try:
        framed, placement = transform.to_frame(Photo(pixels[y : y + high, x : x + wide]))
    except (MemoryError, cv2.error) as error:
        raise ValueError(
            f"Expected {name} to be resized, but its {width}x{height} pixels (width x height) do not fit into memory "
            f"({error}). Shrink it or leave it out."
        ) from error
    sample_id = Path(name).name
    return {
        "image": image_tensor(torch.from_numpy(framed.image)),
        "sample_id": sample_id,
        "sample_key": torch.tensor(sample_key(sample_id)),
        "uncropped": crop is None and framing.crop == "box",
        "photo_size": (width, height),
        "placement": placement.moved(y, x),
    }


def _pixels(photo: PhotoLike, max_pixels: int) -> tuple[str, NDArray[np.uint8]]:
    """What errors call a photo, and its pixels."""
    if isinstance(photo, bytes):
        return "photo", _decoded(photo, max_pixels)
    if isinstance(photo, Image.Image):
        try:
            return "photo", pixels_of(photo, upright=True)
        except (OSError, ValueError) as error:
            raise ValueError(f"Expected a photo that can be read, but {error}.") from error
    if isinstance(photo, np.ndarray | Tensor):
        try:
            return "photo", pixels_of(photo.cpu() if isinstance(photo, Tensor) else photo)
        except ValueError:
            raise ValueError(_refusal(photo)) from None
    if not isinstance(photo, str | Path):
        raise TypeError(_refusal(photo))
    path = user_path(photo)
    if path.is_dir():
        raise FileNotFoundError(
            f"Expected argument `image` to be an image file, but {path} is a folder: name its files."
        )
    if not path.is_file():
        raise FileNotFoundError(f"Expected argument `image` to be an image file, but there is none at {path}.")
    if not is_utf8(str(path)):
        raise ValueError(f"Expected the name of {str(path)!r} to be UTF-8, but it is not. Rename it.")
    try:
        return str(path), decode_image(path, upright=True, max_pixels=max_pixels)
    except ValueError as error:
        raise ValueError(f"{error} Replace the file or leave it out.") from error


def _refusal(photo: Any) -> str:
    """What a photo may be, and what this is."""
    got = f"{type(photo).__name__}" + (f" {photo.dtype} {tuple(photo.shape)}" if hasattr(photo, "dtype") else "")
    return f"Expected a photo to be {ACCEPTED}, but got {got}."


def _floats(photo: PhotoLike) -> Tensor | None:
    """``(3, H, W)`` float32 of pixels as floats; None for anything else.

    Raises:
        ValueError: if they are no photo, or not in [0, 1].
    """
    if not isinstance(photo, np.ndarray | Tensor):
        return None
    image = torch.as_tensor(photo).detach().cpu()
    if not image.is_floating_point():
        return None
    image = (image.movedim(-1, 0) if isinstance(photo, np.ndarray) else image).float()
    if image.ndim != 3 or image.shape[0] != 3 or not image.numel():
        raise ValueError(_refusal(photo))
    low, high = image.aminmax()
    if not (low >= 0 and high <= 1):  # nor NaN
        raise ValueError(f"{_refusal(photo)[:-1]} with values from {low:g} to {high:g}.")
    return image


def _decoded(content: bytes, max_pixels: int) -> NDArray[np.uint8]:
    """The pixels of a file that was read, or received."""
    try:
        with open_image(BytesIO(content), max_pixels) as image:
            return pixels_of(image, upright=True)
    except UnidentifiedImageError as error:
        raise ValueError(f"Expected the photo to be one of {', '.join(FORMATS)}, but got other content.") from error
    except (OSError, SyntaxError, ValueError, MemoryError, Image.DecompressionBombError) as error:
        raise ValueError(f"Expected the photo to be an image, but it cannot be decoded: {error}.") from error


def shows_crops(datamodule: ImageDataModule) -> bool:
    """Whether the photos of some data are cut to boxes (``crop: box``)."""
    return getattr(datamodule, "crop", "none") == "box"
