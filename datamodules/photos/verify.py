"""Photos on which tables mark something: a mark outside its photo shows that the tables are about other photos."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.photos.files import ImageFile, Verify, picture_size

TOLERANCE = 1.0  # pixels; visible points of CUB-200-2011 keep at least 7 from every side


class Mark(NamedTuple):
    """An area of which something must lie on the photo.

    Args:
        what: table and row that say so.
        text: its numbers as they are shown.
        corners: inclusive pixels x0, y0, x1, y1.
    """

    what: str
    text: str
    corners: tuple[float, float, float, float]

    @classmethod
    def box(cls, what: str, corners: NDArray[np.float64]) -> Mark:
        """A box, which may exceed the photo but not miss it.

        Args:
            what: table and row.
            corners: ``(4,)`` inclusive pixels x0, y0, x1, y1.
        """
        x0, y0, x1, y1 = corners.tolist()
        return cls(what, f"{x0:g} {y0:g} {x1:g} {y1:g}", (x0, y0, x1, y1))

    @classmethod
    def point(cls, what: str, point: NDArray[np.float64]) -> Mark:
        """A point, which may lie a pixel beside the photo.

        Args:
            what: table and row.
            point: ``(2,)`` x, y in pixels.
        """
        x, y = point.tolist()
        return cls(what, f"{x:g} {y:g}", (x - TOLERANCE, y - TOLERANCE, x + TOLERANCE, y + TOLERANCE))


@dataclass(frozen=True, kw_only=True)
class MarkedImage(ImageFile):
    """An image with what its data set marks on it.

    Args:
        marks: boxes and visible points.
        sources: what names or contains the image and its mask, for the message that one is not there.
    """

    marks: tuple[Mark, ...]
    sources: tuple[str, str]

    def absent(self, path: Path) -> str:
        """What to say of a file that is not there."""
        return f"{super().absent(path)}; {self.sources[path == self.mask]}"

    def fault(self, verify: Verify) -> str:
        """What is wrong with the files or the first mark that lies outside, or an empty string."""
        if fault := super().fault(verify):
            return fault
        width, height = picture_size(self.path, "header")
        for mark in self.marks:
            x0, y0, x1, y1 = mark.corners
            if x0 >= width or y0 >= height or x1 < 0 or y1 < 0:
                return (
                    f"{mark.what} ({mark.text}) lies outside the {width}x{height} pixels (width x height) of "
                    f"{self.path}; use the photos that the tables are about"
                )
        return ""
