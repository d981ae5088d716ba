"""Readings of a published formula, for metrics with more than one reading in the literature."""

from __future__ import annotations

from typing import Literal, get_args

from protometry.metrics.primitives.checks import check_choice

Variant = Literal["paper", "quanproto"]


def check_variant(variant: Variant) -> None:
    """Refuse an unknown variant.

    ``"paper"`` takes the formula literally; ``"quanproto"`` is what the tables published by Schlinge et al. (2025)
    used. Numbers of different variants never share a column.
    """
    check_choice("variant", variant, get_args(Variant))
