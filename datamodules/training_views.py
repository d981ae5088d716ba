"""Two photometric views of one training image, whose cells correspond because only the geometry is shared.

The views are pure functions of (image, seed, epoch, sample key, number of the view): the same in any process and worker
and after a resume. Every step is an albumentations transform on uint8 in a strict ``Compose``.
"""

from __future__ import annotations

import functools
from typing import Any

import albumentations as A
import numpy as np
import torch
from torch import Tensor

from datamodules.transforms import image_tensor, transform_seed


def training_views(image: Tensor, sample_key: int, seed: int, epoch: int) -> tuple[Tensor, Tensor]:
    """Two draws of strong photometry on the same pixels.

    Source: Nauta et al. 2023 (PIP-Net), whose views share resize, flip and crop and differ in colour. Deviations: the
    steps of :func:`photometry_steps` for their TrivialAugment, and no second random crop, which would move cells.

    Args:
        image: ``(3, H, W)`` float32 RGB in [0, 1], in whole 255ths, after the geometric augmentation.
        sample_key: see :func:`datamodules.sample.sample_key`.
        seed: of the run.
        epoch: number of the epoch.

    Returns:
        Two ``(3, H, W)`` float32 in [0, 1].

    Example:
        >>> image = torch.arange(192).view(3, 8, 8) / 255
        >>> first, second = training_views(image, sample_key=7, seed=0, epoch=1)
        >>> torch.equal(first, second), torch.equal(first, training_views(image, 7, 0, 1)[0])
        (False, True)
    """
    pixels = np.ascontiguousarray((image * 255).round().to(torch.uint8).permute(1, 2, 0).numpy())
    return _view(pixels, transform_seed(seed, epoch, sample_key, 0)), _view(
        pixels, transform_seed(seed, epoch, sample_key, 1)
    )


def photometry_steps() -> list[Any]:
    """Colour jitter of 0.75-1.25 with a hue of 0.05, 2 to 8 bits per channel, and a 3 x 3 mean blur every other time.

    Returns:
        albumentations transforms.
    """
    factors = (0.75, 1.25)
    return [
        A.ColorJitter(brightness=factors, contrast=factors, saturation=factors, hue=(-0.05, 0.05), p=1.0),
        A.Posterize(num_bits=(2, 8), p=1.0),
        A.Blur(blur_limit=(3, 3), p=0.5),
    ]


@functools.cache
def _pipeline() -> A.Compose:
    return A.Compose(photometry_steps(), strict=True)


def _view(pixels: np.ndarray[Any, np.dtype[np.uint8]], seed: int) -> Tensor:
    _pipeline().set_random_seed(seed)
    return image_tensor(_pipeline()(image=pixels)["image"])
