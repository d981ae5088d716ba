"""Where the pixels of a photo come to lie in the model's frame: one resize and one shift, the same for everything.

Image, mask, label map, points and box all follow one :class:`Placement`. OpenCV is called directly: a pipeline of
albumentations gives the same pixels, takes longer than decoding a small photo, and rounds points apart from pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

import cv2
import numpy as np
from numpy.typing import NDArray

GeometryPreset = Literal["stretch", "letterbox", "shorter_crop", "center_crop"]
ResizeFilter = Literal["area", "linear"]


@dataclass(frozen=True)
class Placement:
    """A resize, then a shift into the frame, where what lies outside is cut and what stays empty is 0.

    Args:
        photo: ``(h, w)`` pixels of the photo.
        resized: ``(h, w)`` pixels of the photo after the resize.
        shift: row and column of the frame in which its first pixel lies; negative where it is cut.
        frame: ``(H, W)`` pixels.
    """

    photo: tuple[int, int]
    resized: tuple[int, int]
    shift: tuple[int, int]
    frame: tuple[int, int]

    def image(self, image: NDArray[np.uint8], resize_filter: ResizeFilter) -> NDArray[np.uint8]:
        """An image in the frame.

        Args:
            image: ``(h, w, 3)`` uint8.
            resize_filter: ``area`` averages in the directions in which the photo shrinks; ``linear`` samples.
        """
        if resize_filter == "area":  # a step of its own: OpenCV averages only where no direction grows
            shrunk = min(self.photo[0], self.resized[0]), min(self.photo[1], self.resized[1])
            image = _resized(image, shrunk, cv2.INTER_AREA)
        return self._placed(image, cv2.INTER_LINEAR)

    def labels(self, labels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """A map of codes in the frame; each pixel takes the code at its centre (plain nearest takes the top left).

        Args:
            labels: ``(h, w)`` uint8.
        """
        return self._placed(labels, cv2.INTER_NEAREST_EXACT)

    def points(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Points in the frame, also those outside.

        Args:
            points: ``(N, 2)`` (x, y), where 0 is the edge of the first pixel.

        Example:
            >>> place((60, 90), (30, 30), "shorter_crop").points(np.array([[36.0, 16.0]]))
            array([[11.,  8.]])
        """
        numerator, denominator = np.array(self.resized[::-1]), np.array(self.photo[::-1])
        moved: NDArray[np.float64] = points * numerator / denominator + np.array(self.shift[::-1])
        return moved

    def _placed(self, pixels: NDArray[np.uint8], interpolation: int) -> NDArray[np.uint8]:
        pixels = _resized(pixels, self.resized, interpolation)
        if self.resized == self.frame:
            return pixels
        framed = np.zeros((*self.frame, *pixels.shape[2:]), dtype=np.uint8)
        (top, left), (height, width) = self.shift, self.resized
        source = pixels[max(0, -top) : self.frame[0] - top, max(0, -left) : self.frame[1] - left]
        framed[max(0, top) : top + height, max(0, left) : left + width] = source
        return framed


def _resized(pixels: NDArray[np.uint8], size: tuple[int, int], interpolation: int) -> NDArray[np.uint8]:
    if pixels.shape[:2] == size:
        return pixels
    return cast("NDArray[np.uint8]", cv2.resize(pixels, size[::-1], interpolation=interpolation))


def place(photo: tuple[int, int], frame: tuple[int, int], geometry: GeometryPreset) -> Placement:
    """Where a photo comes to lie.

    Args:
        photo: ``(h, w)`` pixels.
        frame: ``(H, W)`` pixels.
        geometry: ``stretch`` resizes to the frame; ``letterbox`` fits the photo inside and pads; ``shorter_crop`` fills
            the frame and cuts the centre; ``center_crop`` does not resize.

    Returns:
        The resize and the shift; an odd pixel too many is cut or padded at the end.

    Example:
        >>> place((60, 90), (45, 45), "letterbox")
        Placement(photo=(60, 90), resized=(30, 45), shift=(7, 0), frame=(45, 45))
    """
    ratios = frame[0] / photo[0], frame[1] / photo[1]
    scale = {"letterbox": min(ratios), "shorter_crop": max(ratios), "center_crop": 1.0}.get(geometry)
    resized = frame if scale is None else (max(1, round(photo[0] * scale)), max(1, round(photo[1] * scale)))
    spare = frame[0] - resized[0], frame[1] - resized[1]
    shift = tuple(pixels // 2 if pixels >= 0 else -(-pixels // 2) for pixels in spare)
    return Placement(photo, resized, (shift[0], shift[1]), frame)
