"""What a model refuses to look at: images whose predictions would be wrong without a word."""

from __future__ import annotations

import math
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor
from torch._subclasses import FakeTensor

from protometry.lightning_modules.backbones import Backbone

MARGIN = 0.25  # beyond [0, 1], for what resizing and noise overshoot; normalised images go further


def check_images(model: Any, images: Any, has_looked: bool) -> bool:
    """Refuse what a model would misunderstand.

    Values are looked at on a CPU, where that takes 0.2 % of a small network's time, and elsewhere in the first batch
    only, since the host waits for the device.

    Args:
        model: with a ``backbone``, built for images of ``image_size``.
        images: given to it.
        has_looked: whether it has seen the values of a batch.

    Returns:
        Whether it has now.

    Raises:
        TypeError: for integers, or what is no tensor.
        ValueError: for images not in [0, 1], without a batch axis, or of a size that does not suit the backbone.
    """
    of_step = model._trainer is not None and not isinstance(images, Tensor)  # which parallel processes pass on
    if of_step or torch.compiler.is_compiling():
        return has_looked
    check_batch(images)
    if (size := (images.shape[2], images.shape[3])) != model.image_size:
        check_size(model.backbone, size, model.image_size)
    if images.device.type == "cpu" or not has_looked:
        check_values(images)
    return True


def check_batch(images: Any) -> None:
    """Refuse what is no batch of float images, without a look at values.

    Raises:
        TypeError: if it is no float tensor.
        ValueError: if it has another shape.
    """
    if not isinstance(images, Tensor):
        raise TypeError(f"Expected images as a float tensor (B, 3, H, W), but got {type(images).__name__}.")
    if not images.is_floating_point():
        raise TypeError(
            f"Expected images as floats in [0, 1], but got {images.dtype}. Divide 8-bit pixels by 255: `images / 255`."
        )
    if images.ndim != 4:
        remedy = " Add the batch axis: `images[None]`." if images.ndim == 3 else ""
        raise ValueError(f"Expected images (B, 3, H, W), but got {tuple(images.shape)}.{remedy}")


def check_size(backbone: Backbone, size: tuple[int, int], own: tuple[int, int]) -> None:
    """Refuse images of another size where the backbone cannot take them, and warn where it can.

    Raises:
        ValueError: see above.
    """
    said = f"images of {own[0]}x{own[1]} pixels (height x width), for which the model was built, but got "
    try:
        backbone.geometry(size)
    except ValueError as error:
        raise ValueError(f"Expected {said}{size[0]}x{size[1]}. Resize them.") from error
    rank_zero_warn(
        f"Expected {said}{size[0]}x{size[1]}: it sees them at another scale. Resize them, unless that is meant."
    )


def check_values(images: Tensor) -> None:
    """Refuse images that are not RGB in [0, 1]; the host waits for the device.

    Raises:
        ValueError: if a value is NaN, or far outside.
    """
    if isinstance(images, FakeTensor) or not images.numel():
        return
    low, high = torch.stack(images.detach().float().aminmax()).tolist()
    if low >= -MARGIN and high <= 1 + MARGIN:  # which NaN is not
        return
    got = "NaN" if math.isnan(low) else f"values from {low:g} to {high:g}"
    remedy = " Divide 8-bit pixels by 255." if low >= 0 else ""
    remedy = " Leave normalisation to the model, whose first layer it is." if -10 < low < 0 else remedy
    raise ValueError(f"Expected images in [0, 1], but got {got}.{remedy}")
