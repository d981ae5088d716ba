"""FunnyBirds (Hesse et al. 2023): rendered birds put together from parts, with part maps and interventions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_info
from numpy.typing import NDArray
from torch import Tensor

from datamodules.base import Split
from datamodules.funnybirds.files import check_files, no_interventions, no_maps
from datamodules.funnybirds.images import BirdPhotos, FunnyBirdsImages
from datamodules.funnybirds.part_maps import bird_pixels, label_codes
from datamodules.funnybirds.tables import (
    CLASSES,
    OFFICIAL_CLASSES,
    OFFICIAL_SIZES,
    REMEDY,
    URL,
    read_classes,
    read_scenes,
    table_name,
)
from datamodules.photos.data_module import AUGMENTED, PhotoDataModule, PhotoTable
from datamodules.photos.download import Archive
from datamodules.photos.files import ImageFile, Problems, decode_image
from datamodules.sample import Batch, Capabilities
from datamodules.sketch_birds.bank import LABEL_MAP_CODES, PART_NAMES
from datamodules.transforms.photo import Photo, PhotoTransform

ARCHIVES = (Archive(URL, None, 1_600_000_000),)


class FunnyBirds(PhotoDataModule):
    """FunnyBirds, or a subset of its classes in the same layout.

    Source: Hesse et al. 2023. Images from which parts were removed carry ``class_targets``, uniform over the classes
    T(x) that agree with the image on every part it still has. The concepts are the 26 variants of parts, without those
    no class has: present where the part was drawn, and of certainty 1 (not visible) where the part map shows none of
    it, else 4. A hash chooses the validation images among those of train. Every other field depends on which folders
    are there, and the capability flags say so. The tables below exist after ``setup``.

    Args:
        root: the folder ``FunnyBirds`` or the one that holds it; only read.
        scheme: ``official`` is the only one.
        image_size: side of the square frame in pixels, or ``(H, W)``; 256 keeps the pixels of the files.
        photos: the other arguments of :class:`.PhotoDataModule`; ``crop`` has to stay ``none``.

    Raises:
        ValueError: if an argument is out of range.
    """

    title = "FunnyBirds"
    remedy = REMEDY
    concept_names: list[str]
    concept_to_part: Tensor
    class_concepts: Tensor
    class_concepts_binary: Tensor
    class_attributes: Tensor

    def __init__(
        self,
        root: str,
        scheme: Literal["official"] = "official",
        image_size: int | tuple[int, int] = 256,
        **photos: Any,
    ) -> None:
        super().__init__(root, scheme=scheme, image_size=image_size, **photos)
        if scheme != "official":
            raise ValueError(f"Expected argument `scheme` to be 'official' for FunnyBirds, but got {scheme!r}.")
        if photos.get("crop", "none") != "none":  # boxes come from part maps, which training images may not have
            raise ValueError(f"Expected argument `crop` to be 'none' for FunnyBirds, but got {photos['crop']!r}.")

    @property
    def archives(self) -> Sequence[Archive]:
        """One zip file without checksum; what it holds is counted instead."""
        return ARCHIVES

    def promised_classes(self) -> int:
        """The official 50."""
        return OFFICIAL_CLASSES

    @property
    def class_names(self) -> list[str]:
        """The K class names, such as "bird 11" with the official number."""
        classes = self._birds.classes if self._table else read_classes(self.root)
        return [f"bird {number}" for number in classes.official]

    @property
    def part_names(self) -> list[str]:
        """The five parts; they are regions of the label map, there are no points."""
        return list(PART_NAMES)

    @property
    def part_group_names(self) -> list[str]:
        """The five parts again, in which left and right are one already."""
        return list(PART_NAMES)

    @property
    def part_to_group(self) -> Tensor:
        """``(5,)`` int64 index into ``part_group_names``."""
        return torch.arange(len(PART_NAMES))

    @property
    def label_map_codes(self) -> dict[str, tuple[int, ...]]:
        """Codes of each part in ``label_map``; 32 + i is background object i, 255 a blend of colours."""
        return dict(LABEL_MAP_CODES)

    @property
    def _birds(self) -> BirdPhotos:
        assert isinstance(self.photos, BirdPhotos)
        return self.photos

    def table(self) -> BirdPhotos:
        """Read the JSON tables and compare them with each other."""
        classes = read_classes(self.root)
        scenes = read_scenes(classes)
        names = [part.sample_id(row) for part in scenes.values() for row in range(len(part.labels))]
        return BirdPhotos(
            dataset="funnybirds",
            folder=classes.folder,
            class_names=[f"bird {number}" for number in classes.official],
            files=[ImageFile(name, classes.folder / name) for name in names],
            labels=np.concatenate([part.labels for part in scenes.values()]),
            is_test=np.repeat([False, True], [len(part.labels) for part in scenes.values()]),
            classes=classes,
            scenes=scenes,
        )

    def check_download(self, folder: Path) -> None:
        """Raise unless a folder holds the official numbers of classes and images, and every file they imply."""
        classes = read_classes(str(folder))
        scenes = read_scenes(classes)
        problems = Problems(f"the download of {URL}", "Try again, or download it by hand.")
        sizes = [(CLASSES, len(classes.table), OFFICIAL_CLASSES)]
        sizes += [(table_name(name), len(part.labels), OFFICIAL_SIZES[name]) for name, part in scenes.items()]
        for name, found, expected in sizes:
            if found != expected:
                problems.wrong(f"{name}: expected {expected} entries, but got {found}")
        for part in scenes.values():
            check_files(classes.folder, part, (), problems)
        problems.raise_any()

    def files_to_verify(self, table: PhotoTable, excluded: set[str], problems: Problems) -> list[ImageFile]:
        """The photos, and every file that the tables imply."""
        assert isinstance(table, BirdPhotos)
        return [
            file for scenes in table.scenes.values() for file in check_files(table.folder, scenes, excluded, problems)
        ]

    def set_class_tables(self, train_rows: NDArray[np.int64]) -> None:
        """Set the concepts, and say which optional folders are not there."""
        birds, variants = self._birds, self._birds.classes.variant_names
        for reason in (no_maps(birds.folder, "train"), no_maps(birds.folder, "test")):
            if reason:
                rank_zero_info(f"{birds.folder.name}: {reason}; no masks, boxes and label maps there.")
        if reason := no_interventions(birds.folder, "test"):
            rank_zero_info(f"{birds.folder.name}: {reason}; no interventions.")
        names = [f"{part}::{variant}" for part in PART_NAMES for variant in variants[part]]
        part_of = np.repeat(np.arange(len(PART_NAMES)), [len(variants[part]) for part in PART_NAMES])
        first = np.flatnonzero(np.diff(part_of, prepend=-1))
        has = np.zeros((len(birds.classes.table), len(names)), dtype=bool)
        np.put_along_axis(has, birds.classes.table + first, True, axis=1)
        used = np.flatnonzero(has.any(axis=0))
        self.concept_names = [names[concept] for concept in used]
        self.concept_to_part = torch.from_numpy(part_of[used])
        self.class_attributes = torch.from_numpy(has).float()
        self.class_concepts_binary = torch.from_numpy(has[:, used])
        kept = torch.from_numpy(birds.scenes["train"].kept[train_rows]).float()
        labels = torch.from_numpy(birds.labels[train_rows])
        drawn = torch.zeros(len(has), len(PART_NAMES)).index_add_(0, labels, kept)
        share = drawn / torch.bincount(labels, minlength=len(has))[:, None]
        self.class_concepts = share[:, self.concept_to_part] * self.class_concepts_binary

    def mark(self, row: int, photo: Photo) -> Photo:
        """The label map, and the box that follows from it.

        Where objects hide the whole bird of a training image, the mask is empty and the box is the whole photo.

        Raises:
            ValueError: if they hide that of a validation or test image, in which every box of a model would be right.
        """
        part_map = self._birds.part_map(row)
        if part_map is None:
            return photo
        codes = label_codes(decode_image(part_map))
        left, top, width, height = cv2.boundingRect(bird_pixels(codes).view(np.uint8))
        if width == 0 and row not in self._parts["train"]:
            raise ValueError(
                f"Expected {part_map} to show the bird, which is to be found there, but objects hide "
                f"all of it. List {self._birds.files[row].sample_id} in `exclude`."
            )
        if width == 0:
            height, width = codes.shape
        box = np.array([left, top, left + width - 1, top + height - 1], dtype=np.float32)
        return replace(photo, label_map=codes, box=box)

    def add_targets(self, batch: Batch, rows: NDArray[np.int64]) -> None:
        """The soft target over T(x), and the concepts of the parts that were drawn."""
        targets = torch.from_numpy(self._birds.targets[rows]).float()
        batch["class_targets"] = targets / targets.sum(dim=1, keepdim=True)
        drawn = torch.from_numpy(self._birds.kept[rows])[:, self.concept_to_part]
        batch["concepts"] = self.class_concepts_binary[batch["label"]] & drawn

    def annotate(self, batch: Batch, rows: NDArray[np.int64]) -> None:
        """The object mask, and how certain the concepts are: a part without any pixel in the frame is not visible."""
        if "label_map" not in batch:
            return
        maps = batch["label_map"].numpy()
        batch["object_mask"] = torch.from_numpy(bird_pixels(maps))
        pixels = [codes.tobytes() for codes in maps]
        visible = [[any(code in shown for code in LABEL_MAP_CODES[part]) for part in PART_NAMES] for shown in pixels]
        seen = torch.tensor(visible)[:, self.concept_to_part]
        batch["concept_certainty"] = torch.where(seen, 4, 1).to(torch.uint8)

    def make_dataset(self, rows: list[int], transform: PhotoTransform, training: bool) -> FunnyBirdsImages:
        """Their samples, which are also an :class:`~datamodules.bird_parts.InterventionDataset`."""
        return FunnyBirdsImages(self, self._birds, rows, transform, training, self._evaluation)

    def capabilities(self, split: Split) -> Capabilities:
        """Which optional fields the samples of the split carry."""
        self.setup()
        folder, source = self._birds.folder, "test" if split == "test" else "train"
        maps = AUGMENTED if split == "train" else no_maps(folder, source) or True
        return Capabilities(
            soft_targets=True,
            part_points="parts are areas of the label map, not points",
            object_mask=maps,
            label_map=maps,
            bounding_box=maps,
            concepts_class=True,
            concepts_image=True,
            concept_certainty=maps,
            interventions=no_interventions(folder, source) or True,
            class_attributes=True,
        )
