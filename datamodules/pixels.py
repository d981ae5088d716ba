"""Between pixels as files hold them, ``(H, W, 3)`` uint8, and images as models read them, ``(3, H, W)`` float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

IMAGES = ("image", "second_view")


def image_tensor(pixels: Tensor) -> Tensor:
    """Pixels as an image.

    Args:
        pixels: ``(..., H, W, 3)`` uint8 RGB.

    Returns:
        ``(..., 3, H, W)`` float32 in 0..1.

    Example:
        >>> image_tensor(torch.tensor([[[0, 51, 255]]], dtype=torch.uint8)).flatten().tolist()
        [0.0, 0.20000000298023224, 1.0]
    """
    channels_first = pixels.movedim(-1, -3)
    image = np.empty(channels_first.shape, np.float32)  # in huge pages; memory of torch takes twice as long
    return torch.from_numpy(image).copy_(channels_first).div_(255)


def image_pixels(image: Tensor) -> Tensor:
    """An image as pixels, rounded; the inverse of :func:`image_tensor`.

    Args:
        image: ``(..., 3, H, W)`` float32 in 0..1.

    Returns:
        ``(..., H, W, 3)`` uint8 RGB.

    Example:
        >>> pixels = torch.arange(12, dtype=torch.uint8).view(2, 2, 3)
        >>> torch.equal(image_pixels(image_tensor(pixels)), pixels)
        True
    """
    return (image * 255).round().to(torch.uint8).movedim(-3, -1).contiguous()


def with_float_images(sample: Any) -> Any:
    """A sample or batch whose images are float; those that are already stay as they are.

    Args:
        sample: a :class:`~datamodules.sample.Sample` or :class:`~datamodules.sample.Batch`, of which ``image`` and
            ``second_view`` may still be pixels.

    Returns:
        The same fields in a new dictionary.

    Example:
        >>> with_float_images({"image": torch.zeros(2, 2, 3, dtype=torch.uint8)})["image"].shape
        torch.Size([3, 2, 2])
    """
    images = {name: sample[name] for name in IMAGES if name in sample and sample[name].dtype == torch.uint8}
    return {**sample, **{name: image_tensor(pixels) for name, pixels in images.items()}}
