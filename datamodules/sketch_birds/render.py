"""The renderer of SketchBirds: a scene becomes a list of coloured polygons, drawn with Pillow.

The image is drawn at twice the size with one-pixel outlines on the bird and reduced by two; the label map is drawn at
its own size without smoothing, from the same vertices. Pillow is the only rasteriser: no two of them agree, and one
version of it is byte-identical everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from protometry.datamodules.bird_parts import COLORS, FIRST_OBJECT_CODE, PART_NAMES, RGB, shape_and_color
from protometry.datamodules.sketch_birds.bank import PART_COLORS, SLOTS, Polygon, anchors, slot_shape
from protometry.datamodules.sketch_birds.scene import Scene, SceneObject

OUTLINE: RGB = (40, 36, 34)
_SHADE = 0.7


@dataclass(frozen=True)
class Primitives:
    """Coloured polygons in painter's order, with their vertices ``(V, 2)`` in scene coordinates one after the other."""

    vertices: Polygon
    lengths: tuple[int, ...]
    colors: tuple[RGB, ...]
    codes: tuple[int, ...]

    def __iter__(self) -> Iterator[tuple[Polygon, RGB, int]]:
        ends = np.cumsum(self.lengths).tolist()
        for end, length, color, code in zip(ends, self.lengths, self.colors, self.codes, strict=True):
            yield self.vertices[end - length : end], color, code


# triangle, square, pentagon, bar and disc of half size 1, corners as complex numbers
_OBJECTS = (
    np.exp(2j * np.pi * np.arange(3) / 3),
    np.array([-1 - 1j, 1 - 1j, 1 + 1j, -1 + 1j]),
    np.exp(2j * np.pi * np.arange(5) / 5),
    np.array([-1 - 0.5j, 1 - 0.5j, 1 + 0.5j, -1 + 0.5j]),
    np.exp(2j * np.pi * np.arange(16) / 16),
)


def _object_primitives(things: tuple[SceneObject, ...]) -> Primitives:
    if not things:
        return Primitives(np.zeros((0, 2)), (), (), ())
    codes, shapes, colors, x, y, half_sizes, angles = zip(*things, strict=True)
    lengths = tuple(len(_OBJECTS[shape]) for shape in shapes)
    turn = np.repeat(np.array(half_sizes) * np.exp(1j * np.array(angles)), lengths)
    centre = np.repeat(np.array(x) + 1j * np.array(y), lengths)
    points = turn * np.concatenate([_OBJECTS[shape] for shape in shapes]) + centre
    return Primitives(np.stack([points.real, points.imag], axis=1), lengths, colors, codes)


def _tones(color: RGB) -> dict[str, RGB]:
    red, green, blue = (round(_SHADE * value) for value in color)
    return {"base": color, "shaded": (red, green, blue), "white": (250, 250, 250), "black": (15, 15, 15)}


@lru_cache(maxsize=4096)
def _bird(variants: tuple[int, ...], kept: tuple[bool, ...], profile: bool) -> Primitives:
    """The bird in canonical coordinates, its body black."""
    vertices: list[Polygon] = []
    lengths: list[int] = []
    colors: list[RGB] = []
    codes: list[int] = []
    for slot, (part, code) in SLOTS.items():
        shape, color = 0, (0, 0, 0)
        if part != "body":
            number = PART_NAMES.index(part)
            if not kept[number] or (profile and slot in ("far eye", "far wing")):
                continue
            shape, color_index = shape_and_color(part, variants[number])
            color = PART_COLORS[part] if color_index is None else tuple(COLORS.values())[color_index]
        polygons = slot_shape(slot, shape)
        tones = _tones(color)
        vertices.append(polygons.vertices)
        lengths += polygons.lengths
        colors += [tones[tone] for tone in polygons.tones]
        codes += [code] * len(polygons.lengths)
    return Primitives(np.concatenate(vertices), tuple(lengths), tuple(colors), tuple(codes))


def _bird_primitives(scene: Scene) -> Primitives:
    bird = _bird(scene.variants, scene.kept, scene.profile)
    vertices = bird.vertices @ np.array(scene.matrix).T + scene.shift
    tones = _tones((scene.grey, scene.grey, scene.grey))
    body = tuple(tones[tone] for tone in slot_shape("body", 0).tones)
    start = bird.codes.index(SLOTS["body"][1])
    colors = bird.colors[:start] + body + bird.colors[start + len(body) :]
    return Primitives(vertices, bird.lengths, colors, bird.codes)


def primitives(scene: Scene) -> Primitives:
    """The polygons of a scene in painter's order: background objects, bird, occluder.

    Iterating yields ``(polygon, rgb, label code)``.
    """
    layers = [_object_primitives(scene.objects), _bird_primitives(scene)]
    if scene.occluder:
        layers.append(_object_primitives((scene.occluder,)))
    return Primitives(
        np.concatenate([layer.vertices for layer in layers]),
        tuple(length for layer in layers for length in layer.lengths),
        tuple(color for layer in layers for color in layer.colors),
        tuple(code for layer in layers for code in layer.codes),
    )


def to_pixels(points: Polygon, size: tuple[int, int]) -> Polygon:
    """Scene coordinates to (x, y) pixels; the frame [-1, 1]^2 is the largest centred square of the image.

    Example:
        >>> to_pixels(np.array([[-1.0, 1.0], [0.0, 0.0]]), (64, 64)).tolist()
        [[0.0, 0.0], [32.0, 32.0]]
    """
    height, width = size
    half = min(size) / 2
    return points * (half, -half) + (width / 2, height / 2)


def _corners(polygons: Primitives, size: tuple[int, int]) -> list[list[int]]:
    """Flat integer vertices x0 y0 x1 y1 ... of each polygon; Pillow would cut the fraction off itself."""
    flat = np.floor(to_pixels(polygons.vertices, size)).astype(np.int64).ravel().tolist()
    corners, start = [], 0
    for length in polygons.lengths:
        corners.append(flat[start : start + 2 * length])
        start += 2 * length
    return corners


def draw_image(scene: Scene, polygons: Primitives, size: tuple[int, int]) -> NDArray[np.uint8]:
    """The picture of ``primitives(scene)``, ``(H, W, 3)`` uint8 RGB."""
    height, width = size
    canvas = Image.new("RGB", (2 * width, 2 * height), scene.background)
    draw = ImageDraw.Draw(canvas)
    corners = _corners(polygons, (2 * height, 2 * width))
    for polygon, color, code in zip(corners, polygons.colors, polygons.codes, strict=True):
        draw.polygon(polygon, fill=color, outline=OUTLINE if code < FIRST_OBJECT_CODE else None)
    return np.array(canvas.reduce(2))


def draw_label_map(polygons: Primitives, size: tuple[int, int]) -> NDArray[np.uint8]:
    """``(H, W)`` uint8 codes of :data:`~protometry.datamodules.sketch_birds.bank.SLOTS`, 32 + j for object j."""
    canvas = Image.new("L", (size[1], size[0]), 0)
    draw = ImageDraw.Draw(canvas)
    for polygon, code in zip(_corners(polygons, size), polygons.codes, strict=True):
        draw.polygon(polygon, fill=code)
    return np.array(canvas)


def locate_points(scene: Scene, label_map: NDArray[np.uint8]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """The 15 points and which of them can be seen.

    A point is visible if it lies in the frame and the label map at its pixel holds the code of its part.

    Returns:
        ``(15, 2)`` float32 (x, y) pixels, (0, 0) for invisible points, and ``(15,)`` bool.
    """
    height, width = label_map.shape
    canonical, codes = anchors(scene.shapes, scene.facing_right)
    points = to_pixels(canonical @ np.array(scene.matrix).T + scene.shift, (height, width)).astype(np.float32)
    columns, rows = np.floor(points).astype(np.int64).T
    inside = (columns >= 0) & (columns < width) & (rows >= 0) & (rows < height)
    visible: NDArray[np.bool_] = inside & (label_map[rows * inside, columns * inside] == codes)
    return points * visible[:, None], visible
