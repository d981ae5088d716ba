"""Which reading of a published formula a kernel follows, where the literature uses more than one."""

from __future__ import annotations

from typing import Literal, get_args

Variant = Literal["paper", "quanproto"]


def check_variant(variant: Variant) -> None:
    """Refuse an unknown variant.

    Args:
        variant: ``"paper"`` takes the formula literally; ``"quanproto"`` is what the tables published by Schlinge
            et al. (2025) used. Numbers of different variants never share a column.

    Raises:
        ValueError: if ``variant`` is neither.

    Example:
        >>> check_variant("paper")
    """
    if variant not in get_args(Variant):
        raise ValueError(f"Expected argument `variant` to be one of {get_args(Variant)}, but got {variant!r}.")
