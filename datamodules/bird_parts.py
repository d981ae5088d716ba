"""The one interface of data sets whose images can be changed part by part.

SketchBirds renders every change live, FunnyBirds reads the files its authors rendered. Metrics that delete parts or
background objects see nothing but this protocol.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

RGB = tuple[int, int, int]


@runtime_checkable
class InterventionDataset(Protocol):
    """Images of birds put together from parts, with the means to take parts and background objects away.

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
