"""The placement of a photo in the input image: one resize and one shift, the same for pixels, points and boxes.

Image, mask, label map, points and box all follow one :class:`Placement`. OpenCV is called directly: a pipeline of
albumentations gives the same pixels, takes longer than decoding a small photo, and rounds points apart from pixels.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

import cv2
import numpy as np
from numpy.typing import NDArray

GeometryPreset = Literal["stretch", "letterbox", "shorter_crop", "center_crop"]
ResizeFilter = Literal["area", "linear"]
LONG = 64  # frame lengths: a photo whose resized copy would be longer is cut first


@dataclass(frozen=True)
class Placement:
    """A resize, then a shift into the frame, where what lies outside is cut and what stays empty is 0.

    Args:
        photo: ``(h, w)`` pixels of the photo, or of what was cut out of it.
        resized: ``(h, w)`` pixels after the resize.
        shift: row and column of the frame in which the first pixel lies; negative where it is cut.
        frame: ``(H, W)`` pixels.
        corner: row and column of the photo at which it was cut out.
    """

    photo: tuple[int, int]
    resized: tuple[int, int]
    shift: tuple[int, int]
    frame: tuple[int, int]
    corner: tuple[int, int] = (0, 0)

    def image(self, image: NDArray[np.uint8], resize_filter: ResizeFilter) -> NDArray[np.uint8]:
        """An image in the frame; ``area`` averages in the directions in which the photo shrinks, ``linear`` samples."""
        image = self._cut(image)
        if resize_filter == "area":  # a step of its own: OpenCV averages only where no direction grows
            shrunk = min(self.photo[0], self.resized[0]), min(self.photo[1], self.resized[1])
            image = _resized(image, shrunk, cv2.INTER_AREA)
        return self._placed(image, cv2.INTER_LINEAR)

    def labels(self, labels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """A map of codes in the frame; each pixel takes the code at its centre (plain nearest takes the top left)."""
        return self._placed(self._cut(labels), cv2.INTER_NEAREST_EXACT)

    def moved(self, rows: int, columns: int) -> Placement:
        """The same for a larger photo, in which this one begins at a row and a column."""
        return replace(self, corner=(self.corner[0] + rows, self.corner[1] + columns))

    def _cut(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        (top, left), (height, width) = self.corner, self.photo
        return pixels[top : top + height, left : left + width]

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


def place_points(points: NDArray[np.floating], placements: Sequence[Placement]) -> NDArray[np.float64]:
    """The points ``(B, N, 2)`` of B photos in their frames, also those outside; 0 is the edge of the first pixel.

    Example:
        >>> place_points(np.array([[[36.0, 16.0]]]), [place((60, 90), (30, 30), "shorter_crop")])
        array([[[11.,  8.]]])
    """
    moves = np.array([(move.corner, move.photo, move.resized, move.shift) for move in placements])[:, :, None, ::-1]
    corner, photo, resized, shift = moves.swapaxes(0, 1)
    moved: NDArray[np.float64] = (points - corner) * resized / photo + shift
    return moved


@functools.lru_cache(maxsize=4096)
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
        Placement(photo=(60, 90), resized=(30, 45), shift=(7, 0), frame=(45, 45), corner=(0, 0))
    """
    ratios = frame[0] / photo[0], frame[1] / photo[1]
    scale = {"letterbox": min(ratios), "shorter_crop": max(ratios), "center_crop": 1.0}.get(geometry)
    resized = frame if scale is None else (max(1, round(photo[0] * scale)), max(1, round(photo[1] * scale)))
    spare = frame[0] - resized[0], frame[1] - resized[1]
    shift = tuple(pixels // 2 if pixels >= 0 else -(-pixels // 2) for pixels in spare)
    whole = Placement(photo, resized, (shift[0], shift[1]), frame)
    return _middle(whole) if geometry == "shorter_crop" and max(resized) > LONG * max(frame) else whole


def _middle(whole: Placement) -> Placement:
    """The same pixels of the frame from the middle of a very long photo, whose resize could take gigabytes.

    Its ends are some shorter sides away from what the frame shows. They lie at multiples of the shorter side, where
    pixels begin before and after the resize.
    """
    axis = int(whole.photo[1] > whole.photo[0])  # the long one
    side, unit = whole.photo[1 - axis], whole.frame[1 - axis]  # the shorter side, and what becomes of it
    first = -whole.shift[axis] // unit - 1
    count = -(-whole.frame[axis] // unit) + 3

    def with_long(pair: tuple[int, int], value: int) -> tuple[int, int]:
        return (value, pair[1]) if axis == 0 else (pair[0], value)

    return Placement(
        with_long(whole.photo, count * side),
        with_long(whole.resized, count * unit),
        with_long(whole.shift, whole.shift[axis] + first * unit),
        whole.frame,
        with_long(whole.corner, first * side),
    )


def inclusive_boxes(corners: NDArray[np.float64]) -> NDArray[np.float64]:
    """Boxes ``(..., 4)``, edges x0, y0, x1, y1, as inclusive pixels (floor x0, floor y0, ceil(x1) - 1, ceil(y1) - 1).

    Example:
        >>> inclusive_boxes(np.array([1.5, 2.0, 4.5, 11.0]))
        array([ 1.,  2.,  4., 10.])
    """
    rounded = np.round(corners, 3)  # removes float32 noise before the floor
    return np.concatenate([np.floor(rounded[..., :2]), np.ceil(rounded[..., 2:]) - 1], axis=-1)


def clipped_boxes(boxes: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """The part of boxes ``(..., 4)``, inclusive pixels (x0, y0, x1, y1), that lies in the frame.

    Example:
        >>> clipped_boxes(np.array([1.0, 2.0, 4.0, 10.0]), (10, 20))
        array([1., 2., 4., 9.], dtype=float32)
    """
    return boxes.clip(0, (shape[1] - 1, shape[0] - 1) * 2).astype(np.float32)


def placed_boxes(
    boxes: NDArray[np.float32], placements: Sequence[Placement], names: Sequence[object] = ()
) -> NDArray[np.float32]:
    """The boxes ``(B, 4)`` of several photos, inclusive pixels, in their frames of one size, which they must overlap.

    Raises:
        ValueError: if nothing is left of a box.
    """
    edges = boxes.reshape(-1, 2, 2) + np.array([[0], [1]])  # x1 and y1 end their pixel
    placed = inclusive_boxes(place_points(edges, placements).reshape(-1, 4))
    height, width = placements[0].frame
    lost = (placed[:, 0] >= width) | (placed[:, 1] >= height) | (placed[:, 2] < 0) | (placed[:, 3] < 0)
    if lost.any():
        first = int(lost.argmax())
        box = " ".join(f"{edge:g}" for edge in boxes[first].tolist())
        where = f"{names[first]}: " if names else ""
        raise ValueError(
            f"{where}Expected the box {box} to reach into the frame, but the crop to the centre leaves nothing of it. "
            "Use `geometry: stretch` or `crop: box`."
        )
    return clipped_boxes(placed, (height, width))


def box_on_photo(box: tuple[int, int, int, int], placement: Placement) -> tuple[int, int, int, int] | None:
    """The pixels of a photo that a box in the frame covers at least in part.

    Args:
        box: inclusive pixels (x0, y0, x1, y1) of the frame.
        placement: of the photo.

    Returns:
        Inclusive pixels; None for a box beside the photo, in the margin of a letterbox.

    Example:
        >>> box_on_photo((15, 0, 29, 14), place((60, 90), (30, 30), "stretch"))
        (45, 0, 89, 29)
        >>> box_on_photo((0, 0, 29, 4), place((60, 90), (30, 30), "letterbox")) is None
        True
    """
    edges = np.array(box).reshape(2, 2) + np.array([[0], [1]])  # x1 and y1 end their pixel
    edges = (edges - placement.shift[::-1]) * placement.photo[::-1] / placement.resized[::-1]
    inside = edges.clip(0, placement.photo[::-1])
    if (inside[0] >= inside[1]).any():
        return None
    x0, y0, x1, y1 = (int(edge) for edge in inclusive_boxes((inside + placement.corner[::-1]).reshape(4)))
    return x0, y0, x1, y1


def placed_points(
    points: NDArray[np.float32], visible: NDArray[np.bool_] | None, placements: Sequence[Placement]
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """The points of several photos in their frames, and which are visible there; the others become (0, 0)."""
    placed = place_points(points, placements)
    height, width = placements[0].frame
    seen = np.asarray(((placed >= 0) & (placed < (width, height))).all(axis=-1))
    if visible is not None:
        seen = seen & visible
    return np.where(seen[..., None], placed, 0).astype(np.float32), seen
