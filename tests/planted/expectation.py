"""Where what every metric must say of a planted model or explainer is written down, and the constants it follows from.

``parts``: units that fire on one part each. ``background``: units that fire on one spot of the background each.
``clever hans``: shows the parts and reads the background. ``random``, ``prp``: these explainers on ``parts``.
``hash``: units that point anywhere. ``eye``: one unit, in a world where the eye is the object.

An expectation is a number, or a pair for a value at chance level: the number and its standard error. None of them is
computed with ``metrics``; its docstring derives it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tests.planted.scenes import PARTS, SIZE, scenes

Expected = dict[str, float | tuple[float, float]]

PIXELS = SIZE * SIZE
DRAWN = PIXELS - math.floor(0.95 * (PIXELS - 1)) - 1  # pixels strictly above the 0.95 quantile if no two are equal: 205
SLOTS = range(len(PARTS))
HALF_WIDTH, PATCH = round(36 * SIZE / 224), round(32 * SIZE / 224)
CHANGES = ("plc", "psc", "prc", "palc", "pac")
SPATIAL = ("pac", "plc", "prc", "ac")
FAMILY_NAMES = ("completeness", "continuity", "complexity", "alignment", "localisation")

TRUTH: dict[tuple[str, str], Callable[[], Expected]] = {}


def truth(*names: str, family: str) -> Callable:
    """Register the decorated expectation for some planted things and one family of metrics."""

    def register(expectation: Callable) -> Callable:
        once = cache(expectation)
        TRUTH.update({(name, family): once for name in names})
        return expectation

    return register


def averaged(value: Callable[[dict[str, Any], int], float]) -> float:
    """Mean over images of the mean over the units that fire in each, of ``value(scene, slot)``."""
    return float(np.mean([[value(scene, slot) for slot in SLOTS] for scene in scenes()]))
