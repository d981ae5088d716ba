"""CUB-200-2011 (Wah et al. 2011): 200 bird species with boxes, 15 part points, attributes and optional masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_info
from numpy.typing import NDArray
from torch import Tensor

from datamodules.base import Split
from datamodules.cub200.attributes import IMAGE_LABELS, Attributes, attributes_missing, read_attributes
from datamodules.cub200.concepts import (
    Concepts,
    Selection,
    group_of_concept,
    part_groups,
    part_of_concept,
    select_concepts,
)
from datamodules.cub200.rows import ARCHIVES, MASKS, OFFICIAL_CLASSES, REMEDY
from datamodules.cub200.tables import (
    CubTables,
    image_files,
    marked_images,
    mask_folder,
    read_class_names,
    read_tables,
)
from datamodules.photos.data_module import AUGMENTED, PhotoDataModule, PhotoTable
from datamodules.photos.download import Archive
from datamodules.photos.files import ImageFile, Problems
from datamodules.sample import Batch, Capabilities
from datamodules.transforms.photo import Photo
from datamodules.transforms.placement import inclusive_boxes


@dataclass(frozen=True, kw_only=True)
class CubPhotos(PhotoTable):
    """The photos with what else the tables say.

    Args:
        tables: points and official ids.
        attributes: or None if there are none.
    """

    tables: CubTables
    attributes: Attributes | None


class Cub200(PhotoDataModule):
    """CUB-200-2011, or its first classes.

    The tables below exist after ``setup``. Invisible points hold (0, 0); parts and points are in file order.

    Args:
        root: the folder ``CUB_200_2011`` or the one that holds it; only read.
        classes: keep the first classes only; all if None.
        concept_selection: ``fixed`` (the 112 of Koh et al. 2020), ``vote`` (their rule) or ``all`` attributes.
        concept_level: ``class`` gives every image its class's concepts, ``image`` its own annotations.
        min_certainty: ``image``: a concept counts as present from this certainty (1..4) on.
        photos: the other arguments of :class:`datamodules.photos.data_module.PhotoDataModule`.

    Raises:
        ValueError: if an argument is out of range.
    """

    title = "CUB-200-2011"
    remedy = REMEDY
    concept_names: list[str]
    concept_group_names: list[str]
    concept_to_group: Tensor
    concept_to_part: Tensor
    class_concepts: Tensor
    class_concepts_binary: Tensor
    concept_source: str
    class_attributes: Tensor
    part_group_names: list[str]

    def __init__(
        self,
        root: str,
        classes: int | None = None,
        concept_selection: Selection = "fixed",
        concept_level: Literal["class", "image"] = "class",
        min_certainty: int = 1,
        **photos: Any,
    ) -> None:
        super().__init__(root, **photos)
        if concept_level not in ("class", "image"):
            raise ValueError(f"Expected argument `concept_level` to be 'class' or 'image', but got {concept_level!r}.")
        if not 1 <= min_certainty <= 4:
            raise ValueError(f"Expected argument `min_certainty` to be between 1 and 4, but got {min_certainty}.")
        self.classes = classes
        self.concept_selection = concept_selection
        self.concept_level = concept_level
        self.min_certainty = min_certainty

    @property
    def archives(self) -> Sequence[Archive]:
        """The photos with their tables, and the masks."""
        return ARCHIVES

    def promised_classes(self) -> int:
        """The official 200, or as many of them as are asked for."""
        return min(self.classes or OFFICIAL_CLASSES, OFFICIAL_CLASSES)

    @property
    def class_names(self) -> list[str]:
        """The K class names, such as ``001.Black_footed_Albatross``."""
        return self._table.class_names if self._table else read_class_names(self.root, self.classes)

    @property
    def part_names(self) -> list[str]:
        """The 15 points in file order."""
        self.setup()
        return self._tables.part_names

    @property
    def part_to_group(self) -> Tensor:
        """``(15,)`` int64 index into ``part_group_names``, in which left and right are merged."""
        self.setup()
        return torch.tensor(self._groups)

    def table(self) -> CubPhotos:
        """Read every table, the attributes too, and compare them with each other."""
        tables = read_tables(self.root, self.classes)
        return CubPhotos(
            dataset="cub200",
            folder=tables.folder,
            class_names=tables.class_names,
            files=image_files(tables),
            labels=tables.labels,
            is_test=tables.is_test,
            boxes=inclusive_boxes(np.concatenate([tables.boxes[:, :2], tables.boxes[:, :2] + tables.boxes[:, 2:]], 1)),
            tables=tables,
            attributes=read_attributes(tables) if attributes_missing(tables.folder) is None else None,
        )

    def files_to_verify(self, table: PhotoTable, excluded: set[str], problems: Problems) -> list[ImageFile]:
        """The photos with their boxes and visible points, which must not lie outside."""
        assert isinstance(table, CubPhotos)
        return [file for file in marked_images(table.tables) if file.sample_id not in excluded]

    def set_class_tables(self, train_rows: NDArray[np.int64]) -> None:
        """Choose the concepts; the votes of the training images count."""
        assert isinstance(self.photos, CubPhotos)
        tables = self._tables = self.photos.tables
        self.part_group_names, self._groups = part_groups(tables.part_names)
        if mask_folder(tables.folder) is None:
            rank_zero_info(f"{tables.folder.name}: no {MASKS}/ under root; no object masks.")
        self._no_attributes = attributes_missing(tables.folder)
        if self.photos.attributes is not None:
            attributes = self.photos.attributes
            concepts = select_concepts(attributes, self.concept_selection, tables.labels, train_rows)
            if attributes.present is None:
                rank_zero_info(f"{tables.folder.name}: no {IMAGE_LABELS} under root; no concepts per image.")
        else:
            reason = str(self._no_attributes)
            rank_zero_info(f"{tables.folder.name}: {reason}; no concepts.")
            attributes = Attributes([], np.zeros((len(tables.class_names), 0)))
            concepts = Concepts(np.zeros(0, dtype=np.int64), attributes.continuous > 0, reason)
        self._set_concepts(attributes, concepts)

    def _set_concepts(self, attributes: Attributes, concepts: Concepts) -> None:
        chosen = concepts.indices
        self.concept_names = [attributes.names[i] for i in chosen]
        groups = [group_of_concept(name) for name in self.concept_names]
        self.concept_group_names = list(dict.fromkeys(groups))
        self.concept_to_group = torch.tensor(
            [self.concept_group_names.index(name) for name in groups], dtype=torch.int64
        )
        self.concept_to_part = torch.tensor(
            [part_of_concept(name, self.part_group_names) for name in self.concept_names], dtype=torch.int64
        )
        self.class_attributes = torch.from_numpy(attributes.continuous).float()
        self.class_concepts = self.class_attributes[:, torch.from_numpy(chosen)]
        self.class_concepts_binary = torch.from_numpy(concepts.binary)
        self.concept_source = concepts.source
        self._image_concepts: Tensor | None = None
        self._certainty: Tensor | None = None
        if self.concept_level == "class":
            return
        if attributes.present is None or attributes.certainty is None:
            raise ValueError(
                f"Expected {IMAGE_LABELS} to be under `root` for `concept_level: image`, but it is not. Use "
                "`concept_level: class`."
            )
        self._certainty = torch.from_numpy(attributes.certainty[:, chosen])
        self._image_concepts = torch.from_numpy(attributes.present[:, chosen]) & (self._certainty >= self.min_certainty)

    def mark(self, row: int, photo: Photo) -> Photo:
        """The 15 points."""
        points = self._tables.points[row].astype(np.float32)
        return replace(photo, points=points, visible=self._tables.visible[row])

    def annotate(self, batch: Batch, rows: NDArray[np.int64]) -> None:
        """The concepts of the class, or of the image with their certainties."""
        if self._image_concepts is not None and self._certainty is not None:
            batch["concepts"] = self._image_concepts[rows]
            batch["concept_certainty"] = self._certainty[rows]
        elif self.concept_names:
            batch["concepts"] = self.class_concepts_binary[batch["label"]]

    def capabilities(self, split: Split) -> Capabilities:
        """Which optional fields the samples of the split carry."""
        self.setup()
        attributes = self._no_attributes or True
        if split == "train":
            fields = ("object_mask", "part_points", "bounding_box", "concepts_class", "concepts_image")
            return Capabilities(**dict.fromkeys((*fields, "concept_certainty"), AUGMENTED), class_attributes=attributes)
        labels = self._tables.folder / IMAGE_LABELS
        by_image: bool | str = True
        if self._image_concepts is None:
            by_image = "concept_level is class" if labels.is_file() else f"no {IMAGE_LABELS} under root"
        return replace(
            super().capabilities(split),
            object_mask=mask_folder(self._tables.folder) is not None or f"no {MASKS}/ under root",
            part_points=True,
            concepts_class=attributes if by_image is not True else "concept_level is image",
            concepts_image=by_image,
            concept_certainty=by_image,
            class_attributes=attributes,
        )
