"""The colour rule that divides NICO: photos before a pale background are the test set.

Schlinge et al. 2025, *QuanProto*, split NICO by what colour fills a photo. The published names of the colours do not
say what the ranges hold, so the groups have names of their own here:

=============  =========  ==========  ==========  =====================================  =================
published as   hue        saturation  value       what it really is                      counted here as
=============  =========  ==========  ==========  =====================================  =================
"yellow"       40 to 90   50 to 255   50 to 255   green: foliage, grass                  ``foliage``
"green"        90 to 130  50 to 255   50 to 255   cyan and blue: sky, water              ``sky_water``
"gray"         any        0 to 100    100 to 255  pale: snow, haze, pavement             ``pale``
=============  =========  ==========  ==========  =====================================  =================

Bounds are inclusive, in OpenCV's HSV (hue 0 to 179, half degrees). Hue 90 counts twice.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, cast

import cv2
import numpy as np
from numpy.typing import NDArray

Group = Literal["foliage", "sky_water", "pale", "rest"]
GROUPS: tuple[Group, ...] = ("foliage", "sky_water", "pale", "rest")
SIDE = 224
PALE_ABOVE = 35_000
COLOR_ABOVE = 15_000


class Counts(NamedTuple):
    """How many of the 224 x 224 = 50,176 pixels lie in each range."""

    foliage: int
    sky_water: int
    pale: int


def hsv_counts(image: NDArray[np.uint8]) -> Counts:
    """Count the pixels of each colour range.

    Schlinge et al. 2025: the photo is resized to 224 x 224 pixels (bilinear without anti-aliasing, 8 bit) and converted
    to HSV; the ranges follow the module's table.

    Returns:
        Pixels in the ranges, each 0 to 50,176; a pixel may lie in several.

    Raises:
        ValueError: if the image is not ``(H, W, 3)`` uint8.

    Example:
        >>> hsv_counts(np.full((10, 20, 3), (0, 255, 255), np.uint8))  # cyan has hue 90
        Counts(foliage=50176, sky_water=50176, pale=0)
    """
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        raise ValueError(
            f"Expected argument `image` to be (H, W, 3) uint8, but got {image.shape} {image.dtype}. Decode it to RGB."
        )
    small = cv2.resize(image, (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
    hsv = cast(NDArray[np.uint8], cv2.cvtColor(small, cv2.COLOR_RGB2HSV))
    hue, saturation, value = hsv[..., 0], hsv[..., 1], hsv[..., 2]
    colored = (saturation >= 50) & (value >= 50)
    return Counts(
        foliage=int(np.count_nonzero(colored & (hue >= 40) & (hue <= 90))),
        sky_water=int(np.count_nonzero(colored & (hue >= 90) & (hue <= 130))),
        pale=int(np.count_nonzero((saturation <= 100) & (value >= 100))),
    )


def hsv_group(counts: tuple[int, int, int]) -> Group:
    """The group of a photo by its :func:`hsv_counts`; ``pale`` is the test set, the others are divided into folds.

    Schlinge et al. 2025, strict inequalities, the first that holds: pale > 35,000; sky_water > 15,000 and
    foliage < 15,000; foliage > 15,000 and sky_water < 15,000; else the rest.

    Example:
        >>> hsv_group((20_000, 0, 35_000)), hsv_group((20_000, 0, 35_001)), hsv_group((20_000, 15_000, 0))
        ('foliage', 'pale', 'rest')
    """
    foliage, sky_water, pale = counts
    if pale > PALE_ABOVE:
        return "pale"
    if sky_water > COLOR_ABOVE and foliage < COLOR_ABOVE:
        return "sky_water"
    if foliage > COLOR_ABOVE and sky_water < COLOR_ABOVE:
        return "foliage"
    return "rest"
