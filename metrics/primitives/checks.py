"""Checks of arguments that kernels share; no value leaves its device, so that none of them makes a GPU wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

_DTYPES = {"int64": torch.int64, "bool": torch.bool}
_GRID = ("H", "W", "h", "w", "h'", "w'")  # axes of maps and images, which have at least one cell


def check_argument(name: str, value: Any, kind: str, device: torch.device) -> None:
    """Refuse what is no tensor where the annotation ``kind`` wants one, and a tensor on another device.

    The one is a ``TypeError``, the other a ``ValueError``.
    """
    if not isinstance(value, Tensor):
        if "Tensor" in kind and not (value is None and "None" in kind):
            raise TypeError(f"Expected argument `{name}` to be a tensor, but got {type(value).__name__}.")
    elif value.device != device:
        raise ValueError(
            f"Expected argument `{name}` to be on {device}, as the metric is, but got a tensor on {value.device}. "
            "Move either with `.to`."
        )


def check_tensor(
    name: str, value: Tensor, shape: tuple[int | str, ...], kind: Literal["float", "int64", "bool"]
) -> None:
    """Refuse a tensor of the wrong shape or dtype.

    In ``shape``, a letter such as ``"B"`` takes any size, one of a grid (``"H"``, ``"h"``) from 1; the kind ``"float"``
    takes any floating-point dtype.

    Example:
        >>> check_tensor("labels", torch.zeros(3), (4,), "int64")
        Traceback (most recent call last):
        ValueError: Expected argument `labels` to be of shape (4,) and dtype int64, but got (3,) torch.float32.
    """
    same_shape = value.ndim == len(shape) and all(
        size >= (wanted in _GRID) if isinstance(wanted, str) else wanted == size
        for wanted, size in zip(shape, value.shape, strict=True)
    )
    same_kind = value.is_floating_point() if kind == "float" else value.dtype == _DTYPES[kind]
    if not (same_shape and same_kind):
        text = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
        raise ValueError(
            f"Expected argument `{name}` to be of shape ({text}) and dtype {kind}, "
            f"but got {tuple(value.shape)} {value.dtype}."
        )


def check_values(allowed: Tensor, message: str) -> None:
    """Refuse values of a tensor.

    On a CPU, with a ``ValueError`` if any entry of ``allowed`` is False. On a GPU, an assertion fails there, and the
    next call that waits for the device ends with a ``RuntimeError``.
    """
    if allowed.is_cuda:
        torch._assert_async(allowed.all(), message)
    elif not allowed.all():
        raise ValueError(message)


def check_ids(name: str, ids: Tensor, shape: tuple[int | str, ...], size: int) -> None:
    """Refuse what is not int64 ids of that shape below ``size``, with a ``ValueError``; negative is an empty slot."""
    check_tensor(name, ids, shape, "int64")
    check_values(ids < size, f"Expected argument `{name}` to hold ids below {size}, but got larger ones.")


def check_range(name: str, values: Tensor, low: float, high: float) -> None:
    """Refuse finite values outside ``[low, high]``, as :func:`check_values` does; others are for the caller."""
    check_values(
        ((values >= low) & (values <= high)) | ~values.isfinite(),
        f"Expected argument `{name}` to hold values from {low:g} to {high:g}, but got others.",
    )


def check_labels(labels: Tensor, images: int, num_classes: int, name: str = "labels") -> None:
    """Refuse what is not ``(images,)`` int64 classes in ``[0, num_classes)``, with a ``ValueError``."""
    check_tensor(name, labels, (images,), "int64")
    check_range(name, labels, 0, num_classes - 1)


def check_maps(name: str, maps: Tensor) -> None:
    """Refuse what is not ``(..., H, W)`` float with at least one pixel, with a ``ValueError``."""
    if maps.ndim < 2 or not maps.is_floating_point() or 0 in maps.shape[-2:]:
        raise ValueError(
            f"Expected argument `{name}` to be of shape (..., H, W) and dtype float with at least one pixel, "
            f"but got {tuple(maps.shape)} {maps.dtype}."
        )


def check_saliency(saliency: Tensor, object_masks: Tensor) -> None:
    """Refuse what is not ``(B, k, H, W)`` float saliency with ``(B, H, W)`` bool masks, with a ``ValueError``."""
    check_tensor("saliency", saliency, ("B", "k", "H", "W"), "float")
    images, _, height, width = saliency.shape
    check_tensor("object_masks", object_masks, (images, height, width), "bool")


def check_image_size(image_size: tuple[int, int]) -> None:
    """Refuse what is not two numbers of pixels, with a ``ValueError``."""
    if not (isinstance(image_size, Sequence) and len(image_size) == 2 and all(map(_is_length, image_size))):
        raise ValueError(f"Expected argument `image_size` to be (H, W) in whole pixels, but got {image_size!r}.")


def _is_length(side: Any) -> bool:
    return isinstance(side, int) and side > 0


def check_last_axis(name: str, value: Tensor, size: int) -> None:
    """Refuse a tensor whose last axis has another size, with a ``ValueError``."""
    if value.ndim < 1 or value.shape[-1] != size:
        raise ValueError(f"Expected argument `{name}` to be of shape (..., {size}), but got {tuple(value.shape)}.")


def check_at_least(name: str, value: int, least: int) -> None:
    """Refuse a number below the least allowed one, with a ``ValueError``."""
    if value < least:
        raise ValueError(f"Expected argument `{name}` to be at least {least}, but got {value}.")


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse an unknown option, with a ``ValueError`` that lists the known ones."""
    if value not in choices:
        raise ValueError(f"Expected argument `{name}` to be one of {choices}, but got {value!r}.")


def check_quantile(quantile: float | None) -> None:
    """Refuse a quantile outside (0, 1), with a ``ValueError``; None passes."""
    if quantile is not None and not 0 < quantile < 1:
        raise ValueError(f"Expected argument `quantile` to lie strictly between 0 and 1, but got {quantile}.")


def check_threshold(threshold: float) -> None:
    """Refuse a threshold outside [0, 1), with a ``ValueError``."""
    if not 0 <= threshold < 1:
        raise ValueError(f"Expected argument `threshold` to lie in [0, 1), but got {threshold}.")


def our_names(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments of an update, by their names here where they have those of torchmetrics.

    Example:
        >>> our_names({"preds": 1, "scores": 2})
        {'logits': 1, 'scores': 2}
    """
    ours = {"preds": "logits", "target": "labels"}
    return {ours.get(name, name): value for name, value in arguments.items()}
