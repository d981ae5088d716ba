"""One photo of the user, seen as a model sees the data it was trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from datamodules.base import ImageDataModule
from datamodules.dataset import image_tensor
from datamodules.photos.files import decode_image
from datamodules.sample import sample_key
from datamodules.transforms.photo import Photo, PhotoTransform


def read_photo(path: str | Path, datamodule: ImageDataModule) -> dict[str, Any]:
    """A sample without a label: the photo, upright, through the evaluation transform of some data.

    The geometry is that of the data, ``stretch`` where they are not photos. Nothing is cut to a box, as the photo has
    none: for a model of ``crop: box``, the file should show little but the object.

    Returns:
        ``image`` (3, H, W) float32 in [0, 1], ``sample_id``, the name of the file, and ``sample_key``.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is no image.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"Expected argument `image` to be an image file, but there is none at {path}.")
    settings: Any = datamodule.hparams
    chosen = {name: settings[name] for name in ("geometry", "variant") if name in settings}
    framed = PhotoTransform(datamodule.image_size, **chosen)(Photo(decode_image(path, upright=True)))
    key = torch.tensor(sample_key(path.name))
    return {"image": image_tensor(torch.from_numpy(framed.image)), "sample_id": path.name, "sample_key": key}
