"""The continuity view: an evaluation image with other colours, noise, blur and compression.

The view is a pure function of (image, seed, sample key, variant): the same in any process, worker and batch. Every step
is an albumentations transform on float32 with fixed factors and probability 1 in a strict ``Compose``.
"""

from __future__ import annotations

import functools
import math
import re
from importlib.metadata import version
from typing import Any, Literal, get_args

import cv2
import numpy as np
import torch
from torch import Tensor

from protometry.datamodules.arguments import check_choice
from protometry.datamodules.transforms.crop_and_augment import composed, transform_seed

ContinuityVariant = Literal["paper", "quanproto", "identity"]

_NOISE_SD = {"paper": 0.05, "quanproto": math.sqrt(5) / 255}


def continuity_view(image: Tensor, sample_key: int, seed: int = 0, variant: ContinuityVariant = "paper") -> Tensor:
    """The image after all photometric perturbations at once, to measure whether its explanation continues to hold.

    Source: Schlinge et al. (2025), section 5.2. In this order: brightness, contrast and saturation times 1.125, hue
    + 0.05 turn, Gaussian noise of standard deviation 0.05, 3 x 3 mean blur, JPEG of quality 90. Every step clips to
    [0, 1]. The noise map is one of 65 536, which is what albumentations draws from.

    Args:
        image: ``(3, H, W)`` float32 RGB in [0, 1].
        sample_key: see :func:`protometry.datamodules.sample.sample_key`.
        seed: of the noise, at least 0.
        variant: ``"paper"``; ``"quanproto"`` has a noise of sqrt(5)/255, which the published tables used;
            ``"identity"`` returns the image itself, so that every change must come out as 0.

    Returns:
        ``(3, H, W)`` float32 in [0, 1].

    Raises:
        ValueError: if ``variant`` is unknown, ``seed`` is negative or ``image`` has another shape or dtype.

    Example:
        >>> image = torch.full((3, 8, 8), 0.5)
        >>> view = continuity_view(image, sample_key=7)
        >>> torch.equal(view, continuity_view(image, sample_key=7)), torch.equal(view, continuity_view(image, 8))
        (True, False)
    """
    check_choice("variant", variant, get_args(ContinuityVariant))
    if seed < 0:
        raise ValueError(f"Expected argument `seed` to be at least 0, but got {seed}.")
    if image.ndim != 3 or image.shape[0] != 3 or image.dtype != torch.float32:
        raise ValueError(
            f"Expected argument `image` to be of shape (3, H, W) and dtype float32, but got {tuple(image.shape)} "
            f"{image.dtype}."
        )
    if variant == "identity":
        return image
    colour, damage = _pipelines(variant)
    pixels = colour(image=image.permute(1, 2, 0).contiguous().numpy())["image"]
    damage.set_random_seed(transform_seed(seed, 0, sample_key))  # an evaluation has no epochs
    swapped = damage(image=np.ascontiguousarray(pixels[..., ::-1]))["image"]  # see damage_steps
    return torch.from_numpy(np.ascontiguousarray(swapped[..., ::-1].transpose(2, 0, 1)))


def colour_steps() -> list[Any]:
    """Brightness, contrast, saturation and hue, on RGB.

    One step each, because a single ``ColorJitter`` shuffles the order.
    """
    import albumentations as A

    neutral = {"brightness": (1.0, 1.0), "contrast": (1.0, 1.0), "saturation": (1.0, 1.0), "hue": (0.0, 0.0)}
    changes = {"brightness": 1.125, "contrast": 1.125, "saturation": 1.125, "hue": 0.05}
    return [A.ColorJitter(**neutral | {name: (value, value)}, p=1.0) for name, value in changes.items()]


def damage_steps(variant: Literal["paper", "quanproto"]) -> list[Any]:
    """Noise, blur and JPEG, on BGR: albumentations passes the channels on to OpenCV's encoder, which reads BGR.

    In RGB order the encoder would take red for blue, which moves pixels by 2 grey levels on average. Noise and blur
    treat channels alike. The JPEG step rounds to 8 bits, as the codec needs.
    """
    import albumentations as A

    sd = _NOISE_SD[variant]
    noise = {"mean_range": (0.0, 0.0), "per_channel": True, "noise_scale_factor": 1.0}
    return [
        A.GaussNoise(std_range=(sd, sd), **noise, p=1.0),
        A.Blur(blur_limit=(3, 3), p=1.0),
        A.ImageCompression(compression_type="jpeg", quality_range=(90, 90), p=1.0),
    ]


@functools.cache
def _pipelines(variant: Literal["paper", "quanproto"]) -> tuple[Any, Any]:
    return composed(colour_steps()), composed(damage_steps(variant))


def codec_versions() -> dict[str, str]:
    """Versions of what the continuity view depends on to the last bit; record them with results.

    Raises:
        ValueError: if OpenCV was built without JPEG.

    Example:
        >>> sorted(codec_versions())
        ['albumentations', 'jpeg', 'opencv']
    """
    jpeg = re.search(r"^\s*JPEG:\s*(.+)$", cv2.getBuildInformation(), flags=re.MULTILINE)
    if jpeg is None or jpeg[1].strip() == "NO":
        raise ValueError("Expected OpenCV to be built with JPEG, but it is not. Install `opencv-python-headless`.")
    return {"albumentations": version("albumentations"), "opencv": cv2.__version__, "jpeg": jpeg[1].strip()}
