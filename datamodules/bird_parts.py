"""The bird parts of FunnyBirds and SketchBirds, and the one interface to images whose parts can be changed.

Part names, variant counts and the index rule (tail = shape + 3 colour, wing = shape + 2 colour) follow FunnyBirds
(Hesse et al. 2023). Metrics that remove parts or background objects only use :class:`InterventionDataset`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

RGB = tuple[int, int, int]
COLORS = {"red": (220, 50, 47), "green": (60, 170, 60), "blue": (45, 95, 225)}
SHAPE_NAMES = {
    "beak": ("cone", "needle", "hook", "spoon"),
    "eye": ("round", "stalk", "tall"),
    "foot": ("toes", "web", "thick", "bent"),
    "tail": ("wedge", "fork", "drop"),
    "wing": ("oval", "feathers"),
}
COLORED = ("tail", "wing")
PARTS: dict[str, tuple[str, ...]] = {
    part: tuple(f"{color} {shape}" for color in COLORS for shape in shapes) if part in COLORED else shapes
    for part, shapes in SHAPE_NAMES.items()
}
PART_NAMES = tuple(PARTS)
LABEL_MAP_CODES = {"body": (1,), "beak": (2,), "eye": (3, 4), "foot": (5, 6), "tail": (9,), "wing": (7, 8)}
FIRST_OBJECT_CODE = 32


def shape_and_color(part: str, variant: int) -> tuple[int, int | None]:
    """Split a variant index into the indices of shape and colour, None for parts with a fixed colour.

    Example:
        >>> shape_and_color("tail", 4), shape_and_color("wing", 3), shape_and_color("beak", 3)
        ((1, 1), (1, 1), (3, None))
    """
    shapes = len(SHAPE_NAMES[part])
    return variant % shapes, variant // shapes if part in COLORED else None


def target_set(
    table: NDArray[np.int64], label: int | NDArray[np.int64], kept: Sequence[bool] | NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """T(x): the classes that agree with an image on every part it still has.

    Source: Hesse et al. 2023, training targets of images with removed parts.

    Args:
        table: ``(K, 5)`` int64 variants.
        label: class of the image, or ``(n,)`` int64 of several.
        kept: which of the five parts the image was drawn with, or ``(n, 5)`` bool.

    Returns:
        ``(K,)`` or ``(n, K)`` bool; all classes if no part is kept.

    Example:
        >>> table = np.array([[0, 0, 0, 0, 0], [0, 1, 1, 0, 0], [1, 1, 0, 0, 0]])
        >>> target_set(table, 0, (True, False, False, True, True)).tolist()
        [True, True, False]
    """
    own, dropped = table[label], ~np.asarray(kept)
    agrees: NDArray[np.bool_] = ((table == own[..., None, :]) | dropped[..., None, :]).all(axis=-1)
    return agrees


@runtime_checkable
class InterventionDataset(Protocol):
    """Images of birds composed of parts, with removable parts and background objects.

    Source: the interface generalises the intervention files of Hesse et al. 2023 (FunnyBirds). ``i`` is always an
    index in ``range(len(dataset))``. A part that is present may still be hidden by other parts.
    """

    @property
    def n_classes(self) -> int:
        """Number of classes K."""
        ...

    @property
    def parts(self) -> Mapping[str, Sequence[str]]:
        """Part name -> names of its variants; the order of the keys is the part order everywhere."""
        ...

    @property
    def classes(self) -> Sequence[Mapping[str, int]]:
        """For each class: part name -> index of its variant."""
        ...

    def __len__(self) -> int: ...

    def image(self, i: int) -> NDArray[np.uint8]:
        """``(H, W, 3)`` uint8, RGB."""
        ...

    def label_map(self, i: int) -> NDArray[np.uint8]:
        """``(H, W)`` uint8: 0 background, 1 body, 2 beak, 3 4 eyes, 5 6 feet, 7 8 wings, 9 tail, 32+j object j."""
        ...

    def label(self, i: int) -> int:
        """Class index."""
        ...

    def sample_id(self, i: int) -> str:
        """Stable name of the image."""
        ...

    def present(self, i: int) -> frozenset[str]:
        """Names of the parts the image was drawn with."""
        ...

    def n_background(self, i: int) -> int:
        """Number of background objects that can be removed."""
        ...

    def target_set(self, i: int) -> frozenset[int]:
        """T(x): the classes that agree with the image on every part present (all classes if none is)."""
        ...

    def intervene(
        self, i: int, drop: Collection[str] = (), drop_background: Collection[int] = (), background: RGB | None = None
    ) -> NDArray[np.uint8]:
        """The image without some parts or background objects, or before another background colour.

        Args:
            i: index of the image.
            drop: names of present parts to remove.
            drop_background: indices below ``n_background(i)`` of objects to remove.
            background: RGB colour 0..255 that replaces the background.

        Returns:
            ``(H, W, 3)`` uint8; without arguments equal to ``image(i)``.

        Raises:
            ValueError: if something to remove is not there, or if the data set cannot make the change.
        """
        ...
