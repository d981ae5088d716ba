"""The part maps of FunnyBirds (Hesse et al. 2023), converted to the label codes that all data sets share."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import product

import cv2
import numpy as np
from numpy.typing import NDArray

from protometry.datamodules.bird_parts import FIRST_OBJECT_CODE, RGB

MAX_OBJECTS = 50
UNMATCHED = 255
LABEL_COLORS: Mapping[int, RGB] = {
    0: (0, 0, 0),
    1: (170, 170, 170),
    2: (255, 255, 0),
    3: (255, 255, 253),
    4: (255, 255, 254),
    5: (255, 0, 1),
    6: (255, 0, 2),
    7: (0, 255, 1),
    8: (0, 255, 2),
    9: (0, 0, 255),
    **{FIRST_OBJECT_CODE + i: (204, 204, 204 + i) for i in range(MAX_OBJECTS)},
}


@cache
def _code_of_number() -> NDArray[np.uint8]:
    """The code of every 24-bit colour (16 MB)."""
    codes = np.full(1 << 24, UNMATCHED, dtype=np.uint8)
    codes[_numbers(np.array([list(LABEL_COLORS.values())], dtype=np.uint8))] = list(LABEL_COLORS)
    return codes


def _numbers(colors: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """``(H, W, 3)`` RGB as ``(H, W)`` 24-bit numbers."""
    numbers: NDArray[np.uint32] = cv2.cvtColor(colors, cv2.COLOR_RGB2BGRA).view("<u4")[..., 0]
    return numbers & np.uint32(0xFFFFFF)


def label_codes(part_map: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The label codes of a part map; colours must match exactly, as neighbours differ by 1.

    Source: Hesse et al. 2023. About 200 pixels per official map are blends at the edges of parts and match nothing.

    Returns:
        ``(H, W)`` uint8: 0 background, 1 body, 2 beak, 3 4 eyes, 5 6 feet, 7 8 wings, 9 tail, 32 + i background
        object i, 255 unmatched.

    Example:
        >>> label_codes(np.array([[[255, 255, 0], [255, 255, 253], [204, 204, 206], [1, 2, 3]]], np.uint8)).tolist()
        [[2, 3, 34, 255]]
    """
    return _code_of_number().take(_numbers(part_map))


def solid_unknown_color(part_map: NDArray[np.uint8]) -> RGB | None:
    """The first colour without code that fills a block of 3 x 3 pixels, which no blend at an edge does, or None.

    Example:
        >>> solid_unknown_color(np.full((3, 3, 3), 7, np.uint8)), solid_unknown_color(np.full((2, 9, 3), 7, np.uint8))
        ((7, 7, 7), None)
    """
    if min(part_map.shape[:2]) < 3:
        return None
    numbers = np.where(label_codes(part_map) == UNMATCHED, _numbers(part_map).astype(np.int64), -1)
    height, width = numbers.shape
    centre = numbers[1:-1, 1:-1]
    blocks = centre >= 0
    for dy, dx in product(range(3), repeat=2):
        blocks &= numbers[dy : height - 2 + dy, dx : width - 2 + dx] == centre
    if not blocks.any():
        return None
    row, column = np.argwhere(blocks)[0]
    red, green, blue = part_map[row, column].tolist()
    return red, green, blue


def bird_pixels(codes: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """``(..., H, W)`` bool, where the label codes 1..31 of the bird are.

    Example:
        >>> bird_pixels(np.array([[0, 1, 31, 32, 255]], np.uint8)).tolist()
        [[False, True, True, False, False]]
    """
    inside: NDArray[np.bool_] = codes - np.uint8(1) < FIRST_OBJECT_CODE - 1  # 0 becomes 255
    return inside
