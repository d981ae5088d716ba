"""Cosine distances by the definition, one pair of vectors after the other."""

from __future__ import annotations

import math

import pytest

NAN = math.nan
MODES = ("inter", "intra")
CLASSES, CHANNELS = 4, 3


def cosine_distance(one, other):
    """Of two lists of numbers."""
    return 1 - sum(a * b for a, b in zip(one, other, strict=True)) / (math.hypot(*one) * math.hypot(*other))


def mean(values):
    """Mean of the defined values."""
    values = [value for value in values if not math.isnan(value)]
    return sum(values) / len(values) if values else NAN


def slow_distance(own, other, mode):
    """Mean over all pairs of vectors, by the definition; NaN without a pair."""
    if mode == "inter":
        return mean([cosine_distance(one, two) for one in own for two in other])
    return mean([cosine_distance(one, two) for i, one in enumerate(own) for j, two in enumerate(own) if i != j])


def approx(values):
    """Equal up to the rounding of float64, NaN equals NaN."""
    return pytest.approx(values, abs=1e-12, nan_ok=True)
