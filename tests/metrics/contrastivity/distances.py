"""Cosine distances by the definition, one pair of vectors after the other."""

import math

from tests.metrics.tester import mean

MODES = ("inter", "intra")
CLASSES, CHANNELS = 4, 3


def cosine_distance(one, other):
    """Of two lists of numbers."""
    return 1 - sum(a * b for a, b in zip(one, other, strict=True)) / (math.hypot(*one) * math.hypot(*other))


def slow_distance(own, other, mode):
    """Mean over all pairs of vectors, by the definition; NaN without a pair."""
    if mode == "inter":
        return mean([cosine_distance(one, two) for one in own for two in other])
    return mean([cosine_distance(one, two) for i, one in enumerate(own) for j, two in enumerate(own) if i != j])
