"""Masks of objects whose outline is given as polygons, as in COCO."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def polygon_mask(polygons: Sequence[NDArray[np.float64]], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """The pixels whose centres lie in any of some polygons, each by the even-odd rule.

    Args:
        polygons: ``(P, 2)`` corners (x, y) each, in pixels; 0 is the outer edge of the first pixel.
        shape: ``(H, W)``.

    Example:
        >>> triangle = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
        >>> polygon_mask([triangle], (3, 4)).astype(int).tolist()
        [[1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0]]
    """
    height, width = shape
    mask = np.zeros(shape, dtype=bool)
    middle = np.arange(height)[:, None] + 0.5
    for corners in polygons:
        (x0, y0), (x1, y1) = corners.T, np.roll(corners, -1, axis=0).T
        crossed = (y0 <= middle) != (y1 <= middle)  # (H, P): the rows whose middle each edge crosses
        row, edge = np.nonzero(crossed)
        x = x0[edge] + (middle[row, 0] - y0[edge]) / (y1 - y0)[edge] * (x1 - x0)[edge]
        first = np.clip(np.ceil(x - 0.5), 0, width).astype(np.int64)  # pixel whose centre is right of the edge
        passed = np.zeros((height, width + 1), dtype=np.int64)
        np.add.at(passed, (row, first), 1)
        mask |= passed.cumsum(axis=1)[:, :width] % 2 == 1
    return mask
