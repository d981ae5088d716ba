"""Scenes: everything random about an image, drawn before anything is left out.

``sample_scene(seed, split, i, ...)`` reads one block of uniform numbers that belongs to (seed, split, i) alone. Every
number has its fixed place, whether a knob needs it or not, so switching a knob leaves the rest of the scene unchanged.
"""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from protometry.datamodules.bird_parts import FIRST_OBJECT_CODE, PART_NAMES, RGB, shape_and_color
from protometry.datamodules.sketch_birds.bank import Slot, slot_anchor

SPLIT_CODES = {"train": 0, "val": 1, "test": 2}
FIXED_BACKGROUND: RGB = (85, 85, 153)
MAX_OBJECTS = 12
OBJECT_SHAPES = 5
OBJECT_COLORS: tuple[RGB, ...] = ((178, 98, 92), (98, 150, 92), (92, 122, 178), (184, 172, 96))
_NUM_FIXED = 32
_PER_OBJECT = 6

Matrix = tuple[tuple[float, float], tuple[float, float]]
Shift = tuple[float, float]


class SceneObject(NamedTuple):
    """One polygon that is not a bird: a background object or the occluder. Coordinates as in :class:`Scene`."""

    code: int
    shape: int
    color: RGB
    x: float
    y: float
    half_size: float
    angle: float


@dataclass(frozen=True)
class Scene:
    """What is in one image. Scene coordinates: the frame is [-1, 1]^2, x to the right, y upwards.

    Args:
        variants: variant of each part in the order beak, eye, foot, tail, wing.
        matrix: 2x2 matrix from canonical to scene coordinates.
        grey: grey value of the body, 0..255.
        background: colour behind everything.
        context: index of the background context, 0 without contexts.
        objects: background objects, drawn first.
    """

    label: int
    variants: tuple[int, ...]
    kept: tuple[bool, ...]
    profile: bool
    matrix: Matrix
    shift: Shift
    grey: int
    background: RGB
    context: int
    objects: tuple[SceneObject, ...]
    occluder: SceneObject | None

    @property
    def shapes(self) -> tuple[int, ...]:
        """The shape of each part."""
        return tuple(shape_and_color(part, v)[0] for part, v in zip(PART_NAMES, self.variants, strict=True))

    @property
    def facing_right(self) -> bool:
        """Whether the bird looks to the right, i.e. was not flipped."""
        (a, b), (c, d) = self.matrix
        return a * d - b * c > 0


@dataclass(frozen=True)
class Knobs:
    """What a split's scenes may contain, see :class:`.SketchBirds`.

    Args:
        context_correlation: rho in p(c | class) = (1 - rho) / n + rho [c = preferred context].
        context_offset: the preferred context is (class + offset) mod n.

    Raises:
        ValueError: if a probability is not in [0, 1] or ``contexts`` is negative.
    """

    part_removal: float = 0.0
    contexts: int = 0
    context_correlation: float = 0.0
    context_offset: int = 0
    occluders: float = 0.0
    profile: float = 0.5

    def __post_init__(self) -> None:
        for name in ("part_removal", "context_correlation", "occluders", "profile"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"Expected argument `{name}` to be in [0, 1], but got {getattr(self, name)}.")
        if self.contexts < 0:
            raise ValueError(f"Expected argument `contexts` to be at least 0, but got {self.contexts}.")


def scene_uniforms(seed: int, split: str, index: int) -> list[float]:
    """The uniform numbers in [0, 1) of one image; more knobs append, nothing moves."""
    sequence = np.random.SeedSequence((seed, SPLIT_CODES[split], index))
    rng = np.random.Generator(np.random.PCG64(sequence))
    numbers: list[float] = rng.random(_NUM_FIXED + _PER_OBJECT * MAX_OBJECTS).tolist()
    return numbers


def kept_parts(uniforms: Sequence[float], part_removal: float) -> tuple[bool, ...]:
    """Which of the five parts an image keeps.

    Source: Hesse et al. 2023: training images are complete with probability 1 - ``part_removal``, otherwise
    k ~ U{0..5} random parts are removed.
    """
    count = int(uniforms[1] * (len(PART_NAMES) + 1)) if uniforms[0] < part_removal else 0
    order = uniforms[2:7]
    removed = set(sorted(order)[:count])
    return tuple(number not in removed for number in order)


def sample_scene(seed: int, split: str, index: int, classes: Sequence[Sequence[int]], knobs: Knobs) -> Scene:
    """The scene of image ``index``, which shows class ``index mod K``.

    Pose: flip with probability 1/2, rotation within 26 degrees, scale .62 to .92, x squeezed by .75 to 1, shift within
    .18. 0 to 12 background objects of half size .05 to .18.

    Example:
        >>> scene = sample_scene(0, "test", 5, [(0, 0, 0, 0, 0), (1, 1, 1, 1, 1)], Knobs())
        >>> scene.label, scene.variants, scene.kept
        (1, (1, 1, 1, 1, 1), (True, True, True, True, True))
    """
    u = scene_uniforms(seed, split, index)
    label = index % len(classes)
    variants = tuple(int(v) for v in classes[label])
    matrix = _matrix(flip=u[7] < 0.5, angle=np.radians(52 * u[8] - 26), scale=0.62 + 0.3 * u[9], squeeze=1 - u[10] / 4)
    shift = (0.36 * u[11] - 0.18, 0.36 * u[12] - 0.18)
    objects = tuple(
        _object(FIRST_OBJECT_CODE + j, u[_NUM_FIXED + _PER_OBJECT * j :][:_PER_OBJECT], (0.05, 0.18))
        for j in range(int(u[14] * (MAX_OBJECTS + 1)))
    )
    context, background = _context(u[25:29], label, knobs)
    scene = Scene(
        label=label,
        variants=variants,
        kept=kept_parts(u, knobs.part_removal),
        profile=u[15] < knobs.profile,
        matrix=matrix,
        shift=shift,
        grey=150 + int(61 * u[13]),
        background=background,
        context=context,
        objects=objects,
        occluder=None,
    )
    return replace(scene, occluder=_occluder(scene, u[17:25])) if u[16] < knobs.occluders else scene


def _matrix(flip: bool, angle: float, scale: float, squeeze: float) -> Matrix:
    """Squeeze along x, flip, scale, then rotate counter-clockwise."""
    cos, sin = scale * float(np.cos(angle)), scale * float(np.sin(angle))
    x = -squeeze if flip else squeeze
    return (cos * x, -sin), (sin * x, cos)


def _object(code: int, u: Sequence[float], sizes: tuple[float, float]) -> SceneObject:
    """An object anywhere in the frame from six uniform numbers."""
    shape, color = int(u[0] * OBJECT_SHAPES), OBJECT_COLORS[int(u[1] * len(OBJECT_COLORS))]
    half_size = sizes[0] + (sizes[1] - sizes[0]) * u[4]
    return SceneObject(code, shape, color, 2 * u[2] - 1, 2 * u[3] - 1, half_size, 2 * float(np.pi) * u[5])


def _occluder(scene: Scene, u: Sequence[float]) -> SceneObject:
    """A polygon of half size .18 to .30 within .05 of a random part."""
    number = int(u[0] * len(PART_NAMES))
    slot: Slot = ("beak", "near eye", "near foot", "tail", "near wing")[number]
    px, py = slot_anchor(slot, scene.shapes[number])
    (a, b), (c, d) = scene.matrix
    x = a * px + b * py + scene.shift[0] + 0.1 * u[1] - 0.05
    y = c * px + d * py + scene.shift[1] + 0.1 * u[2] - 0.05
    code = FIRST_OBJECT_CODE + len(scene.objects)
    return _object(code, (u[3], u[4], 0, 0, u[5], u[6]), (0.18, 0.30))._replace(x=x, y=y)


def _context(u: Sequence[float], label: int, knobs: Knobs) -> tuple[int, RGB]:
    """Context index and background colour: hue context / n with jitter of at most a quarter of the spacing."""
    n = knobs.contexts
    if n == 0:
        return 0, FIXED_BACKGROUND
    preferred = u[0] < knobs.context_correlation
    context = (label + knobs.context_offset) % n if preferred else int(u[1] * n)
    red, green, blue = colorsys.hsv_to_rgb((context + u[2] / 2 - 0.25) / n % 1, 0.5, 0.5 + 0.2 * u[3])
    return context, (round(255 * red), round(255 * green), round(255 * blue))
