"""The check of tensor arguments every kernel shares: shape and dtype only, so that no value leaves its device."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

_DTYPES = {"int64": torch.int64, "bool": torch.bool}


def check_tensor(
    name: str, value: Tensor, shape: tuple[int | str, ...], kind: Literal["float", "int64", "bool"]
) -> None:
    """Refuse a tensor of the wrong shape or dtype.

    Args:
        name: the argument's name, for the message.
        value: the argument.
        shape: expected sizes; a letter such as ``"B"`` takes any size.
        kind: expected dtype; ``"float"`` takes any floating-point dtype.

    Raises:
        ValueError: if the shape or the dtype differs.

    Example:
        >>> check_tensor("labels", torch.zeros(3), (4,), "int64")
        Traceback (most recent call last):
        ValueError: Expected argument `labels` to be of shape (4,) and dtype int64, but got (3,) torch.float32.
    """
    same_shape = value.ndim == len(shape) and all(
        isinstance(wanted, str) or wanted == size for wanted, size in zip(shape, value.shape, strict=True)
    )
    same_kind = value.is_floating_point() if kind == "float" else value.dtype == _DTYPES[kind]
    if not (same_shape and same_kind):
        text = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
        raise ValueError(
            f"Expected argument `{name}` to be of shape ({text}) and dtype {kind}, "
            f"but got {tuple(value.shape)} {value.dtype}."
        )
