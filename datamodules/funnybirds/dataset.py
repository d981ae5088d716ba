"""FunnyBirds (Hesse et al. 2023) as a plain data set: rendered birds, also without some of their parts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import cv2
import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_info
from numpy.typing import NDArray

from protometry.datamodules.bird_parts import LABEL_MAP_CODES, PART_NAMES, RGB, target_set
from protometry.datamodules.funnybirds import files
from protometry.datamodules.funnybirds.part_maps import bird_pixels, label_codes
from protometry.datamodules.funnybirds.tables import BirdClasses, Scenes, read_classes, read_scenes
from protometry.datamodules.photos.dataset import AUGMENTED, PhotoDataset, PhotoTable
from protometry.datamodules.photos.files import decode_image
from protometry.datamodules.photos.problems import Problems
from protometry.datamodules.photos.verify import ImageFile
from protometry.datamodules.sample import Batch, Capabilities, ClassTables
from protometry.datamodules.splits import Split
from protometry.datamodules.transforms.crop_and_augment import Photo, PhotoTransform


@dataclass(frozen=True, kw_only=True)
class BirdTable(PhotoTable):
    """What the tables say about the images: training images first, then test images."""

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
        return {
            name: None if files.no_maps(self.folder, name) else self.folder / files.maps_folder(name)
            for name in self.scenes
        }

    def part_map(self, row: int) -> Path | None:
        """Where the part map of an image lies; None where its split has none."""
        scenes, position = self.scene(row)
        folder = self.map_folders[scenes.split]
        return None if folder is None else folder / scenes.file(position)


class FunnyBirdsDataset(PhotoDataset):
    """The images of FunnyBirds, or of a subset of its classes in the same layout, as an evaluation sees them.

    Images with removed parts carry ``class_targets``, uniform over the classes T(x) that agree with the
    image on every part it still has. The concepts are the 26 variants of parts, without those no class has: present
    where the part was drawn, and of certainty 1 (not visible) where the part map shows none of it, else 4. Every other
    field depends on which folders are there, and the capability flags say so. It is also an
    :class:`~protometry.datamodules.bird_parts.InterventionDataset`, whose pictures and label maps are in the model's
    frame and not augmented, so that ``image(i)`` is what an evaluation sample holds.

    Args:
        root: the folder ``FunnyBirds`` or the one that holds it; only read.
        transform: what makes the model's frame; by default, the 256 x 256 pixels of the files.

    Raises:
        FileNotFoundError: if the folder or a table is not found.
        ValueError: if a table is malformed or two tables disagree.
    """

    table: BirdTable
    marks_without_pixels = True

    def __init__(self, root: str, transform: PhotoTransform | None = None) -> None:
        classes = read_classes(root)
        scenes = read_scenes(classes)
        names = [part.sample_id(row) for part in scenes.values() for row in range(len(part.labels))]
        table = BirdTable(
            dataset="funnybirds",
            folder=classes.folder,
            class_names=[f"bird {number}" for number in classes.official],
            files=[ImageFile(name, classes.folder / name) for name in names],
            labels=np.concatenate([part.labels for part in scenes.values()]),
            is_test=np.repeat([False, True], [len(part.labels) for part in scenes.values()]),
            classes=classes,
            scenes=scenes,
        )
        super().__init__(table, transform or PhotoTransform((256, 256)))
        self.frame = self.transform
        for reason in (files.no_maps(table.folder, "train"), files.no_maps(table.folder, "test")):
            if reason:
                rank_zero_info(f"{table.folder.name}: {reason}; no masks, boxes and label maps there.")
        if reason := files.no_interventions(table.folder, "test"):
            rank_zero_info(f"{table.folder.name}: {reason}; no interventions.")
        assert table.is_test is not None
        self.learn(np.flatnonzero(~table.is_test))

    def learn(self, train_rows: NDArray[np.int64]) -> None:
        """Set the concepts; how often a class shows one is counted over the training images."""
        table, variants = self.table.classes.table, self.table.classes.variant_names
        names = [f"{part}::{variant}" for part in PART_NAMES for variant in variants[part]]
        part_of = np.repeat(np.arange(len(PART_NAMES)), [len(variants[part]) for part in PART_NAMES])
        first = np.flatnonzero(np.diff(part_of, prepend=-1))
        has = np.zeros((len(table), len(names)), dtype=bool)
        np.put_along_axis(has, table + first, True, axis=1)
        used = np.flatnonzero(has.any(axis=0))
        concept_to_part, binary = torch.from_numpy(part_of[used]), torch.from_numpy(has[:, used])
        kept = torch.from_numpy(self.table.kept[train_rows]).float()
        labels = torch.from_numpy(self.table.labels[train_rows])
        drawn = torch.zeros(len(has), len(PART_NAMES)).index_add_(0, labels, kept)
        share = drawn / torch.bincount(labels, minlength=len(has))[:, None]
        self._trained_on = np.zeros(len(self.table.labels), dtype=bool)
        self._trained_on[train_rows] = True
        self.tables = ClassTables(
            part_names=list(PART_NAMES),
            part_group_names=list(PART_NAMES),
            part_to_group=torch.arange(len(PART_NAMES)),
            label_map_codes=dict(LABEL_MAP_CODES),
            concept_names=[names[concept] for concept in used],
            concept_to_part=concept_to_part,
            class_concepts=share[:, concept_to_part] * binary,
            class_concepts_binary=binary,
            class_attributes=torch.from_numpy(has).float(),
            attribute_names=names,
        )

    def files_to_verify(self, problems: Problems) -> list[ImageFile]:
        """The images, and every file that the tables imply."""
        wanted = {*self.sample_ids}
        left_out = {file.sample_id for file in self.table.files} - wanted
        scenes = self.table.scenes.values()
        return [file for part in scenes for file in files.check_files(self.table.folder, part, left_out, problems)]

    def mark(self, row: int, photo: Photo) -> Photo:
        """The label map, and the box that follows from it.

        Where objects hide the whole bird of a training image, the mask is empty and the box is the whole photo.

        Raises:
            ValueError: if they hide the whole bird of an evaluated image, where any box of a model would count as
                right.
        """
        part_map = self.table.part_map(row)
        if part_map is None:
            return photo
        codes = label_codes(self.decoded(row, part_map))
        left, top, width, height = cv2.boundingRect(bird_pixels(codes).view(np.uint8))
        if width == 0 and not self._trained_on[row]:
            raise ValueError(
                f"Expected {part_map} to show the bird, which is to be found there, but objects hide "
                f"all of it. List {self.table.files[row].sample_id} in `exclude`."
            )
        if width == 0:
            height, width = codes.shape
        box = np.array([left, top, left + width - 1, top + height - 1], dtype=np.float32)
        return replace(photo, label_map=codes, box=box)

    def add_targets(self, batch: Batch, rows: NDArray[np.int64]) -> None:
        """The soft target over T(x), and the concepts of the parts that were drawn."""
        assert self.tables.class_concepts_binary is not None
        assert self.tables.concept_to_part is not None
        targets = torch.from_numpy(self.table.targets[rows]).float()
        batch["class_targets"] = targets / targets.sum(dim=1, keepdim=True)
        drawn = torch.from_numpy(self.table.kept[rows])[:, self.tables.concept_to_part]
        batch["concepts"] = self.tables.class_concepts_binary[batch["label"]] & drawn

    def annotate(self, batch: Batch, rows: NDArray[np.int64]) -> None:
        """The object mask, and how certain the concepts are: a part without any pixel in the frame is not visible."""
        if "label_map" not in batch:
            return
        maps = batch["label_map"].numpy()
        batch["object_mask"] = torch.from_numpy(bird_pixels(maps))
        pixels = [codes.tobytes() for codes in maps]
        visible = [
            [any(code in codes_in_map for code in LABEL_MAP_CODES[part]) for part in PART_NAMES]
            for codes_in_map in pixels
        ]
        seen = torch.tensor(visible)[:, self.tables.concept_to_part]
        batch["concept_certainty"] = torch.where(seen, 4, 1).to(torch.uint8)

    def capabilities(self, split: Split = "test") -> Capabilities:
        """Which optional fields the samples of a split carry."""
        folder, source = self.table.folder, "test" if split == "test" else "train"
        maps = AUGMENTED if split == "train" else files.no_maps(folder, source) or True
        return Capabilities(
            soft_targets=True,
            part_points="parts are areas of the label map, not points",
            object_mask=maps,
            label_map=maps,
            bounding_box=maps,
            concepts_class=True,
            concepts_image=True,
            concept_certainty=maps,
            interventions=files.no_interventions(folder, source) or True,
            class_attributes=True,
        )

    @property
    def n_classes(self) -> int:
        """Number of classes K."""
        return len(self.table.classes.table)

    @cached_property
    def parts(self) -> Mapping[str, Sequence[str]]:
        """Part name -> names of all its variants, whether or not a class uses them."""
        return self.table.classes.variant_names

    @cached_property
    def classes(self) -> Sequence[Mapping[str, int]]:
        """For each class: part name -> index of its variant."""
        return [dict(zip(PART_NAMES, row, strict=True)) for row in self.table.classes.table.tolist()]

    def image(self, i: int) -> NDArray[np.uint8]:
        """``(H, W, 3)`` uint8, RGB."""
        return self._picture(self.table.files[self._row(i)].path)

    def label_map(self, i: int) -> NDArray[np.uint8]:
        """``(H, W)`` uint8 label codes, 255 where the part map holds a blend of colours.

        Raises:
            ValueError: if the split has no part maps.
        """
        file = self.table.part_map(self._row(i))
        if file is None:
            reason = files.no_maps(self.table.folder, self.table.scene(self._row(i))[0].split)
            raise ValueError(f"Expected image {self.sample_id(i)} to have a part map, but got: {reason}.")
        part_map = decode_image(file)
        codes = self._in_frame(Photo(part_map, label_map=label_codes(part_map))).label_map
        assert codes is not None
        return codes

    def label(self, i: int) -> int:
        """Class index."""
        return int(self.table.labels[self._row(i)])

    def sample_id(self, i: int) -> str:
        """Such as "test/3/000010.png"."""
        return self.table.files[self._row(i)].sample_id

    def present(self, i: int) -> frozenset[str]:
        """Names of the parts the image was drawn with."""
        kept = self.table.kept[self._row(i)].tolist()
        return frozenset(part for part, there in zip(PART_NAMES, kept, strict=True) if there)

    def n_background(self, i: int) -> int:
        """Number of background objects."""
        scenes, position = self.table.scene(self._row(i))
        return int(scenes.objects[position])

    def target_set(self, i: int) -> frozenset[int]:
        """T(x): the classes that agree with the image on every part present (all classes if none is)."""
        return frozenset(np.flatnonzero(self.table.targets[self._row(i)]).tolist())

    def intervene(
        self, i: int, drop: Collection[str] = (), drop_background: Collection[int] = (), background: RGB | None = None
    ) -> NDArray[np.uint8]:
        """The image without some parts, or without one background object, as its authors rendered it, or ``image(i)``.

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
        scenes, position = self.table.scene(self._row(i))
        if reason := files.no_interventions(self.table.folder, scenes.split):
            raise ValueError(f"Expected image {self.sample_id(i)} to have interventions, but got: {reason}.")
        name = files.background_file(objects[0]) if objects else files.kept_file(self.present(i) - set(drop))
        return self.table.folder / files.intervention_folder(scenes, position) / name

    def _picture(self, path: Path) -> NDArray[np.uint8]:
        return self._in_frame(Photo(decode_image(path))).image

    def _in_frame(self, photo: Photo) -> Photo:
        return self.frame.to_frame(photo)[0]

    def _row(self, i: int) -> int:
        if not 0 <= i < len(self.rows):
            raise IndexError(f"Expected argument `i` to be in [0, {len(self.rows)}), but got {i}.")
        return int(self.rows[i])
