"""The parts bank: the shapes a sketch bird is assembled from, in canonical coordinates.

The canonical bird looks to the right: x runs to the head, y upwards, everything within [-1, 1] or a little over it.
A shape is a list of (polygon, tone); a further variant is one more such list. Part names, variant counts and the index
rule follow FunnyBirds, see :mod:`protometry.datamodules.bird_parts`; point names and their order follow CUB-200-2011
(Wah et al. 2011).
"""

from __future__ import annotations

from functools import cache
from typing import Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from protometry.datamodules.bird_parts import PART_NAMES

Polygon = NDArray[np.float64]
Tone = Literal["base", "shaded", "white", "black"]
Shape = list[tuple[Polygon, Tone]]
Slot = Literal["tail", "far wing", "far foot", "body", "near foot", "far eye", "beak", "near eye", "near wing"]

PART_COLORS = {"beak": (250, 200, 50), "eye": (255, 255, 255), "foot": (240, 140, 40)}

# painter's order: slot -> (part, code in the label map)
SLOTS: dict[Slot, tuple[str, int]] = {
    "tail": ("tail", 9),
    "far wing": ("wing", 8),
    "far foot": ("foot", 6),
    "body": ("body", 1),
    "near foot": ("foot", 5),
    "far eye": ("eye", 4),
    "beak": ("beak", 2),
    "near eye": ("eye", 3),
    "near wing": ("wing", 7),
}
# fmt: off
POINT_NAMES = (
    "back", "beak", "belly", "breast", "crown", "forehead", "left eye", "left leg", "left wing",
    "nape", "right eye", "right leg", "right wing", "tail", "throat",
)
# fmt: on
POINT_GROUPS = tuple(dict.fromkeys(name.split()[-1] for name in POINT_NAMES))
PART_TO_GROUP = {part: POINT_GROUPS.index({"foot": "leg"}.get(part, part)) for part in PART_NAMES}

_BODY_POINTS = {
    "back": (0.04, 0.235),
    "belly": (-0.02, -0.27),
    "breast": (0.36, 0.04),
    "crown": (0.44, 0.58),
    "forehead": (0.59, 0.53),
    "nape": (0.23, 0.43),
    "throat": (0.50, 0.19),
}
_PART_POINTS: dict[Slot, tuple[tuple[float, float], ...]] = {
    "beak": ((0.68, 0.37), (0.80, 0.36), (0.72, 0.36), (0.74, 0.35)),
    "near eye": ((0.52, 0.46), (0.52, 0.68), (0.52, 0.46)),
    "far eye": ((0.36, 0.46), (0.36, 0.68), (0.36, 0.46)),
    "near foot": ((0.12, -0.60), (0.12, -0.58), (0.12, -0.50), (0.18, -0.56)),
    "far foot": ((-0.14, -0.60), (-0.14, -0.58), (-0.14, -0.50), (-0.09, -0.56)),
    "near wing": ((-0.10, 0.02), (-0.20, 0.12)),
    "far wing": ((-0.17, 0.31), (-0.24, 0.44)),
    "tail": ((-0.72, -0.17), (-0.60, 0.0), (-0.70, -0.02)),
}


def _ellipse(cx: float, cy: float, rx: float, ry: float | None = None, angle: float = 0.0, n: int = 24) -> Polygon:
    """Ellipse as an n-gon, semi-axes ``rx`` and ``ry``, rotated counter-clockwise by ``angle`` radians."""
    t = np.arange(n) * (2 * np.pi / n)
    x, y = rx * np.cos(t), (rx if ry is None else ry) * np.sin(t)
    cos, sin = np.cos(angle), np.sin(angle)
    return np.stack([cx + cos * x - sin * y, cy + sin * x + cos * y], axis=1)


def _polygon(*coordinates: float) -> Polygon:
    return np.array(coordinates, dtype=np.float64).reshape(-1, 2)


def _with_core(polygon: Polygon, factor: float = 0.55) -> Shape:
    """The polygon and, on it, a shaded copy shrunk about its centre of vertices."""
    centre = polygon.mean(axis=0)
    return [(polygon, "base"), (centre + factor * (polygon - centre), "shaded")]


def _shift(shape: Shape, x: float, y: float = 0.0) -> Shape:
    return [(polygon + np.array([x, y]), tone) for polygon, tone in shape]


_BODY: Shape = [
    (_ellipse(0.0, -0.05, 0.52, 0.34, 0.25, 32), "base"),
    (_ellipse(-0.06, -0.16, 0.40, 0.18, 0.2), "shaded"),
    (_ellipse(0.42, 0.38, 0.24), "base"),
]
_BEAKS: list[Shape] = [
    [(_polygon(0.60, 0.46, 0.60, 0.28, 0.86, 0.36), "base")],
    [(_polygon(0.62, 0.42, 0.62, 0.33, 1.08, 0.33, 1.06, 0.37), "base")],
    [(_polygon(0.60, 0.48, 0.60, 0.27, 0.74, 0.27, 0.84, 0.18, 0.90, 0.30, 0.84, 0.44), "base")],
    [
        (_polygon(0.60, 0.44, 0.60, 0.30, 0.80, 0.26, 0.98, 0.28, 0.98, 0.37, 0.80, 0.40), "base"),
        (_polygon(0.62, 0.36, 0.96, 0.32, 0.96, 0.34, 0.62, 0.38), "shaded"),
    ],
]
_EYES: list[Shape] = [
    [(_ellipse(0, 0, 0.07), "white"), (_ellipse(0.015, 0, 0.032, n=12), "black")],
    [
        (_polygon(-0.012, 0.0, 0.012, 0.0, 0.012, 0.20, -0.012, 0.20), "black"),
        (_ellipse(0, 0.22, 0.062), "white"),
        (_ellipse(0, 0.22, 0.030, n=12), "black"),
    ],
    [(_ellipse(0, 0, 0.05, 0.105), "white"), (_ellipse(0, -0.03, 0.03, 0.05, n=12), "black")],
]
_FEET: list[Shape] = [
    [
        (_polygon(-0.02, -0.30, 0.02, -0.30, 0.02, -0.84, -0.02, -0.84), "base"),
        (_polygon(-0.02, -0.80, 0.02, -0.80, 0.14, -0.88, 0.12, -0.92, -0.02, -0.85), "base"),
        (_polygon(0.02, -0.80, -0.02, -0.80, -0.11, -0.88, -0.09, -0.92, 0.02, -0.85), "base"),
    ],
    [
        (_polygon(-0.03, -0.30, 0.03, -0.30, 0.03, -0.80, -0.03, -0.80), "base"),
        (_polygon(-0.03, -0.76, 0.03, -0.76, 0.20, -0.90, -0.12, -0.90), "base"),
    ],
    [
        (_polygon(-0.06, -0.30, 0.06, -0.30, 0.06, -0.62, -0.06, -0.62), "shaded"),
        (_ellipse(0.05, -0.68, 0.14, 0.08), "base"),
    ],
    [
        (_polygon(-0.035, -0.30, 0.035, -0.30, 0.115, -0.56, 0.03, -0.84, -0.035, -0.84, 0.04, -0.56), "base"),
        (_polygon(-0.06, -0.82, 0.20, -0.82, 0.20, -0.88, -0.06, -0.88), "base"),
    ],
]
_TAILS: list[Shape] = [
    _with_core(_polygon(-0.44, 0.0, -0.40, -0.18, -0.98, -0.34, -1.04, -0.14)),
    [(_polygon(-0.42, 0.02, -0.40, -0.16, -0.98, -0.02, -0.72, 0.10, -1.0, 0.30), "base")],
    _with_core(_ellipse(-0.70, -0.02, 0.32, 0.13, -0.5)),
]
_WINGS: list[Shape] = [
    _with_core(_ellipse(-0.10, 0.02, 0.36, 0.17, -0.35)),
    _with_core(_polygon(0.16, 0.12, -0.10, 0.20, -0.52, 0.40, -0.44, 0.16, -0.50, 0.04, -0.24, -0.12, 0.08, -0.10)),
]
_SHAPES: dict[Slot, list[Shape]] = {
    "tail": _TAILS,
    "far wing": [[(polygon * (0.85, 1.15) + (0.10, 0.08), tone) for polygon, tone in wing] for wing in _WINGS],
    "far foot": [_shift(foot, -0.14) for foot in _FEET],
    "body": [_BODY],
    "near foot": [_shift(foot, 0.12) for foot in _FEET],
    "far eye": [_shift(eye, 0.36, 0.46) for eye in _EYES],
    "beak": _BEAKS,
    "near eye": [_shift(eye, 0.52, 0.46) for eye in _EYES],
    "near wing": _WINGS,
}


class SlotShape(NamedTuple):
    """The polygons of one slot: ``(V, 2)`` vertices one polygon after the other, their lengths and tones."""

    vertices: Polygon
    lengths: tuple[int, ...]
    tones: tuple[Tone, ...]


@cache
def slot_shape(slot: Slot, shape: int) -> SlotShape:
    """The polygons of a shape in its slot.

    Example:
        >>> slot_shape("beak", 0).vertices.tolist()
        [[0.6, 0.46], [0.6, 0.28], [0.86, 0.36]]
    """
    polygons = _SHAPES[slot][shape]
    vertices = np.concatenate([polygon for polygon, _ in polygons])
    return SlotShape(vertices, tuple(len(polygon) for polygon, _ in polygons), tuple(tone for _, tone in polygons))


def slot_anchor(slot: Slot, shape: int) -> tuple[float, float]:
    """Canonical (x, y) of the point that names a slot, such as the middle of the near eye."""
    return _PART_POINTS[slot][shape]


@cache
def anchors(shapes: tuple[int, ...], facing_right: bool) -> tuple[Polygon, NDArray[np.uint8]]:
    """The 15 points of a bird: where they are and which label code lies under each when it is visible.

    A bird that faces right shows its right side, so near is right; flipped, near is left.

    Returns:
        ``(15, 2)`` canonical coordinates in the order of ``POINT_NAMES``, and ``(15,)`` codes.

    Example:
        >>> points, codes = anchors((0, 0, 0, 0, 0), True)
        >>> name = POINT_NAMES.index
        >>> points[name("right eye")].tolist(), int(codes[name("right eye")]), int(codes[name("left eye")])
        ([0.52, 0.46], 3, 4)
    """
    depth = {"right": "near", "left": "far"} if facing_right else {"left": "near", "right": "far"}
    points, codes = [], []
    for name in POINT_NAMES:
        *side, part = name.split()
        if part in _BODY_POINTS:
            points.append(_BODY_POINTS[part])
            codes.append(SLOTS["body"][1])
            continue
        part = {"leg": "foot"}.get(part, part)
        slot = cast(Slot, " ".join([*(depth[s] for s in side), part]))
        points.append(slot_anchor(slot, shapes[PART_NAMES.index(part)]))
        codes.append(SLOTS[slot][1])
    return np.array(points), np.array(codes, dtype=np.uint8)
