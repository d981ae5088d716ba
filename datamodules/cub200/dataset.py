"""CUB-200-2011 (Wah et al. 2011) as a plain data set: photos with boxes, points, masks and concepts."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_info
from numpy.typing import NDArray
from torch import Tensor

from protometry.datamodules.arguments import check_choice
from protometry.datamodules.cub200.attributes import IMAGE_LABELS, Attributes, attributes_missing, read_attributes
from protometry.datamodules.cub200.concepts import Selection, select_concepts
from protometry.datamodules.cub200.rows import MASKS
from protometry.datamodules.cub200.tables import CubTable, marks_of, mask_folder, parts_missing, read_tables
from protometry.datamodules.photos.dataset import AUGMENTED, PhotoDataset
from protometry.datamodules.photos.part_names import part_groups, part_of_concept
from protometry.datamodules.photos.problems import Problems
from protometry.datamodules.photos.verify import ImageFile
from protometry.datamodules.sample import Batch, Capabilities, ClassTables
from protometry.datamodules.splits import Split
from protometry.datamodules.transforms.crop_and_augment import PhotoTransform


@cache
def _say_missing(absent: str) -> None:
    """Log once what is missing, although a run reads the tables several times."""
    rank_zero_info(absent)


class Cub200Dataset(PhotoDataset):
    """The photos of CUB-200-2011, or of its first classes, as an evaluation sees them.

    Concepts follow the votes of the official training photos until :meth:`learn` names others.

    Args:
        root: the folder ``CUB_200_2011`` or the one that holds it; only read.
        classes: keep the first classes only; all if None.
        concept_selection: ``fixed`` (the 112 of Koh et al. 2020), ``vote`` (their rule) or ``all`` attributes.
        concept_level: ``class`` gives every photo its class's concepts, ``image`` its own annotations.
        transform: what makes the model's frame; by default, photos are resized to 224 x 224 pixels.

    Raises:
        FileNotFoundError: if the folder or a table is missing, except the tables of parts and attributes.
        ValueError: if tables are malformed or disagree, or an argument is out of range.
    """

    table: CubTable

    def __init__(
        self,
        root: str,
        classes: int | None = None,
        concept_selection: Selection = "fixed",
        concept_level: Literal["class", "image"] = "class",
        transform: PhotoTransform | None = None,
    ) -> None:
        check_choice("concept_level", concept_level, ("class", "image"))
        super().__init__(read_tables(root, classes), transform or PhotoTransform())
        self.concept_selection, self.concept_level = concept_selection, concept_level
        folder = self.table.folder
        self._missing = {"object_mask": None if mask_folder(folder) else f"no {MASKS}/ under root"}
        self._missing["class_attributes"] = attributes_missing(folder)
        self._attributes = None if self._missing["class_attributes"] else read_attributes(self.table)
        by_image = self._attributes is not None and self._attributes.present is not None
        self._missing["concepts_image"] = None if by_image else f"no {IMAGE_LABELS} under root"
        self._missing["part_points"] = parts_missing(folder)
        if reasons := list(filter(None, self._missing.values())):
            _say_missing(f"{folder}: {'; '.join(reasons)}.")
        assert self.table.is_test is not None
        self.learn(np.flatnonzero(~self.table.is_test))

    def learn(self, train_rows: NDArray[np.int64]) -> None:
        """Choose the concepts; the votes of the training photos count."""
        groups, part_to_group = part_groups(self.table.part_names)
        self.tables = ClassTables()
        if part_to_group:
            self.tables = ClassTables(
                part_names=self.table.part_names, part_group_names=groups, part_to_group=torch.tensor(part_to_group)
            )
        self._concepts: dict[str, Tensor] = {}
        if self._attributes is None:
            return
        concepts = select_concepts(self._attributes, self.concept_selection, self.table.labels, train_rows)
        names = [self._attributes.names[index] for index in concepts.indices]
        strengths = torch.from_numpy(self._attributes.continuous).float()
        self.tables = replace(
            self.tables,
            concept_names=names,
            concept_to_part=torch.tensor([part_of_concept(name, groups) for name in names], dtype=torch.int64),
            class_concepts=strengths[:, torch.from_numpy(concepts.indices)],
            class_concepts_binary=torch.from_numpy(concepts.binary),
            concept_source=concepts.source,
            class_attributes=strengths,
            attribute_names=self._attributes.names,
        )
        if self.concept_level == "image":
            self._concepts = self._of_images(self._attributes, concepts.indices)

    def _of_images(self, attributes: Attributes, chosen: NDArray[np.int64]) -> dict[str, Tensor]:
        if attributes.present is None or attributes.certainty is None:
            raise ValueError(
                f"Expected {IMAGE_LABELS} to be under `root` for `concept_level: image`, but it is not. Use "
                "`concept_level: class`."
            )
        return {
            "concepts": torch.from_numpy(attributes.present[:, chosen]),
            "concept_certainty": torch.from_numpy(attributes.certainty[:, chosen]),
        }

    def add_targets(self, batch: Batch, rows: NDArray[np.int64]) -> None:
        """The concepts of the class, or of the photo with their certainties."""
        fields: Any = batch
        for name, values in self._concepts.items():
            fields[name] = values[rows]
        if not self._concepts and self.tables.class_concepts_binary is not None:
            batch["concepts"] = self.tables.class_concepts_binary[batch["label"]]

    def files_to_verify(self, problems: Problems) -> list[ImageFile]:
        """The photos with their boxes and visible points, which must not lie outside."""
        return [replace(self.table.files[row], marks=marks_of(self.table, row)) for row in self.rows.tolist()]

    def capabilities(self, split: Split = "test") -> Capabilities:
        """Which optional fields the samples of a split carry."""
        flags = super().capabilities(split)
        attributes = self._missing["class_attributes"] or True
        by_class, by_image = attributes, self._missing["concepts_image"] or True
        if self.concept_level == "image":
            by_class = "concept_level is image"
        elif by_image is True:
            by_image = "concept_level is class"
        masks = AUGMENTED if split == "train" else self._missing["object_mask"] or True
        return replace(
            flags,
            object_mask=masks,
            part_points=self._missing["part_points"] or flags.part_points,
            concepts_class=by_class,
            concepts_image=by_image,
            concept_certainty=by_image,
            class_attributes=attributes,
        )
