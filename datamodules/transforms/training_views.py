"""The two views of a training image: two colour augmentations of one geometry."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from protometry.datamodules.transforms.crop_and_augment import composed, transform_seed


def training_views(pixels: Tensor, sample_key: int, seed: int, epoch: int) -> tuple[Tensor, Tensor]:
    """Two draws of a strong colour augmentation on the same pixels, so that the cells of the two views correspond.

    Source: Nauta et al. 2023 (PIP-Net), whose views share resize, flip and crop and differ in colour. Deviations:
    colour jitter of 0.75-1.25 with a hue of 0.05, posterisation to 2-8 bits per channel and a 3 x 3 mean blur with
    probability 0.5 for their TrivialAugment, and no second random crop, which would move cells.

    Returns:
        Two ``(H, W, 3)`` uint8 RGB, a pure function of the arguments.

    Example:
        >>> pixels = torch.arange(192, dtype=torch.uint8).view(8, 8, 3)
        >>> first, second = training_views(pixels, sample_key=7, seed=0, epoch=1)
        >>> torch.equal(first, second), torch.equal(first, training_views(pixels, 7, 0, 1)[0])
        (False, True)
    """
    first, second = (_view(pixels, transform_seed(seed, epoch, sample_key, view)) for view in range(2))
    return first, second


@functools.cache
def _colour_augmentation() -> Any:
    import albumentations as A

    factors = (0.75, 1.25)
    steps = [
        A.ColorJitter(brightness=factors, contrast=factors, saturation=factors, hue=(-0.05, 0.05), p=1.0),
        A.Posterize(num_bits=(2, 8), p=1.0),
        A.Blur(blur_limit=(3, 3), p=0.5),
    ]
    return composed(steps)


def _view(pixels: Tensor, seed: int) -> Tensor:
    _colour_augmentation().set_random_seed(seed)
    return torch.from_numpy(_colour_augmentation()(image=pixels.numpy())["image"])
