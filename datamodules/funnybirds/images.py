"""The images of FunnyBirds as samples, and the renderings without some parts or without one background object."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from datamodules.bird_parts import RGB
from datamodules.funnybirds.files import (
    background_file,
    intervention_folder,
    kept_file,
    maps_folder,
    no_interventions,
    no_maps,
)
from datamodules.funnybirds.part_maps import label_codes
from datamodules.funnybirds.tables import BirdClasses, Scenes
from datamodules.photos.dataset import PhotoDataset, PhotoTable
from datamodules.photos.files import decode_image
from datamodules.sketch_birds.bank import PART_NAMES
from datamodules.sketch_birds.class_table import target_set
from datamodules.transforms.photo import Photo, PhotoTransform

if TYPE_CHECKING:
    from datamodules.funnybirds.data_module import FunnyBirds


@dataclass(frozen=True, kw_only=True)
class BirdPhotos(PhotoTable):
    """The photos, first those of train, then those of test, with what else the tables say.

    Args:
        classes: which birds the classes are.
        scenes: "train" and "test" -> what the images were drawn with.
    """

    classes: BirdClasses
    scenes: dict[str, Scenes]

    def scene(self, row: int) -> tuple[Scenes, int]:
        """The split an image belongs to and its position in that split's table."""
        before = len(self.scenes["train"].labels)
        return (self.scenes["train"], row) if row < before else (self.scenes["test"], row - before)

    @cached_property
    def kept(self) -> NDArray[np.bool_]:
        """``(n, 5)`` bool, which parts the images were drawn with."""
        return np.concatenate([scenes.kept for scenes in self.scenes.values()])

    @cached_property
    def targets(self) -> NDArray[np.bool_]:
        """``(n, K)`` bool, T(x): the classes that agree with an image on every part it was drawn with."""
        return target_set(self.classes.table, self.labels, self.kept)

    @cached_property
    def map_folders(self) -> dict[str, Path | None]:
        """Split -> the folder of its part maps, if there is one."""
        return {name: None if no_maps(self.folder, name) else self.folder / maps_folder(name) for name in self.scenes}

    def part_map(self, row: int) -> Path | None:
        """Where the part map of an image lies; None where its split has none."""
        scenes, position = self.scene(row)
        folder = self.map_folders[scenes.split]
        return None if folder is None else folder / scenes.file(position)


class FunnyBirdsImages(PhotoDataset):
    """Some images of FunnyBirds; also an :class:`~datamodules.bird_parts.InterventionDataset`.

    Pictures and label maps of that interface are in the model's frame, not augmented, so that ``image(i)`` is what an
    evaluation sample holds.

    Args:
        source: the data module whose hooks complete a sample.
        photos: all images.
        rows: the images of this data set, as indices into ``photos``.
        transform: what makes a sample's frame.
        training: whether samples carry image, targets and ids only.
        frame: the evaluation transform.
    """

    def __init__(
        self,
        source: FunnyBirds,
        photos: BirdPhotos,
        rows: list[int],
        transform: PhotoTransform,
        training: bool,
        frame: PhotoTransform,
    ) -> None:
        super().__init__(source, photos, rows, transform, training)
        self.photos = photos
        self.frame = frame

    @property
    def n_classes(self) -> int:
        """Number of classes K."""
        return len(self.photos.classes.table)

    @cached_property
    def parts(self) -> Mapping[str, Sequence[str]]:
        """Part name -> names of all its variants, whether or not a class uses them."""
        return self.photos.classes.variant_names

    @cached_property
    def classes(self) -> Sequence[Mapping[str, int]]:
        """For each class: part name -> index of its variant."""
        return [dict(zip(PART_NAMES, row, strict=True)) for row in self.photos.classes.table.tolist()]

    def image(self, i: int) -> NDArray[np.uint8]:
        """``(H, W, 3)`` uint8, RGB."""
        return self._picture(self.photos.files[self._row(i)].path)

    def label_map(self, i: int) -> NDArray[np.uint8]:
        """``(H, W)`` uint8 label codes, 255 where the part map holds a blend of colours.

        Raises:
            ValueError: if the split has no part maps.
        """
        file = self.photos.part_map(self._row(i))
        if file is None:
            reason = no_maps(self.photos.folder, self.photos.scene(self._row(i))[0].split)
            raise ValueError(f"Expected image {self.sample_id(i)} to have a part map, but got: {reason}.")
        part_map = decode_image(file)
        codes = self.frame(Photo(part_map, label_map=label_codes(part_map))).label_map
        assert codes is not None
        return codes

    def label(self, i: int) -> int:
        """Class index."""
        return int(self.photos.labels[self._row(i)])

    def sample_id(self, i: int) -> str:
        """Such as "test/3/000010.png"."""
        return self.photos.files[self._row(i)].sample_id

    def present(self, i: int) -> frozenset[str]:
        """Names of the parts the image was drawn with."""
        kept = self.photos.kept[self._row(i)].tolist()
        return frozenset(part for part, there in zip(PART_NAMES, kept, strict=True) if there)

    def n_background(self, i: int) -> int:
        """Number of background objects."""
        scenes, position = self.photos.scene(self._row(i))
        return int(scenes.objects[position])

    def target_set(self, i: int) -> frozenset[int]:
        """T(x): the classes that agree with the image on every part present (all classes if none is)."""
        return frozenset(np.flatnonzero(self.photos.targets[self._row(i)]).tolist())

    def intervene(
        self, i: int, drop: Collection[str] = (), drop_background: Collection[int] = (), background: RGB | None = None
    ) -> NDArray[np.uint8]:
        """The image without some parts, or without one background object, as its authors rendered it.

        Args:
            i: index of the image.
            drop: names of present parts to remove.
            drop_background: one index below ``n_background(i)``.
            background: not offered.

        Returns:
            ``(H, W, 3)`` uint8; without arguments equal to ``image(i)``.

        Raises:
            ValueError: if something to remove is not there, or there is no such rendering.
        """
        if unknown := [part for part in drop if part not in self.present(i)]:
            present = [part for part in PART_NAMES if part in self.present(i)]
            raise ValueError(f"Expected argument `drop` to name parts present, {present}, but got {unknown[0]!r}.")
        if absent := [index for index in drop_background if not 0 <= index < self.n_background(i)]:
            raise ValueError(
                f"Expected argument `drop_background` to hold indices below {self.n_background(i)}, the number of "
                f"background objects, but got {absent[0]}."
            )
        objects = sorted(set(drop_background))
        if background is not None or len(objects) > 1 or (drop and objects):
            raise ValueError(
                "Expected an intervention that FunnyBirds was rendered for, which is any set of parts removed or one "
                f"background object removed, but got drop={sorted(drop)}, drop_background={objects}, "
                f"background={background}."
            )
        if not drop and not objects:
            return self.image(i)
        return self._picture(self._rendering(i, drop, objects))

    def _rendering(self, i: int, drop: Collection[str], objects: Sequence[int]) -> Path:
        scenes, position = self.photos.scene(self._row(i))
        if reason := no_interventions(self.photos.folder, scenes.split):
            raise ValueError(f"Expected image {self.sample_id(i)} to have interventions, but got: {reason}.")
        name = background_file(objects[0]) if objects else kept_file(self.present(i) - set(drop))
        return self.photos.folder / intervention_folder(scenes, position) / name

    def _picture(self, path: Path) -> NDArray[np.uint8]:
        return self.frame(Photo(decode_image(path))).image

    def _row(self, i: int) -> int:
        if not 0 <= i < len(self.rows):
            raise IndexError(f"Expected argument `i` to be in [0, {len(self.rows)}), but got {i}.")
        return self.rows[i]
