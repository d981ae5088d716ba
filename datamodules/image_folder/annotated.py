"""Photos with the annotations of a table: labels, boxes, points, masks and attributes of each of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from protometry.datamodules.image_folder.annotations import Annotations
from protometry.datamodules.image_folder.own_folder import marked_files
from protometry.datamodules.photos.class_attributes import (
    AttributedDataset,
    ClassAttributes,
    PhotoAttributes,
    class_tables,
)
from protometry.datamodules.photos.dataset import PhotoTable
from protometry.datamodules.photos.part_names import part_groups, part_of_concept
from protometry.datamodules.photos.problems import Problems
from protometry.datamodules.photos.verify import ImageFile
from protometry.datamodules.sample import Batch, Capabilities, ClassTables
from protometry.datamodules.splits import Split
from protometry.datamodules.transforms.crop_and_augment import PhotoTransform

SMALLEST = 6  # photos, which a test part and four folds can share
Task = Literal["attributes", "single"]
ConceptLevel = Literal["class", "image"]


class AnnotatedDataset(AttributedDataset):
    """Photos with annotations in a table.

    ``labels`` holds the classes of a photo where it has several, or its attributes where these are the task.

    Args:
        table: of the photos.
        transform: what makes the model's frame.
        found: what the table says of the photos, in their order; None without a table.
        classes: the attributes of the classes; None lets the attributes of training photos vote on them.
        task: ``attributes`` makes attributes the labels, ``single`` the class; None takes what there is: several
            classes, the attributes of classes without a table, or else the class.
        concept_level: ``image`` gives a photo its own attributes where the table has any, ``class`` those of its class.

    Raises:
        ValueError: if the annotations do not fit each other or the task.
    """

    def __init__(
        self,
        table: PhotoTable,
        transform: PhotoTransform,
        found: Annotations | None,
        classes: ClassAttributes | None,
        task: Task | None,
        concept_level: ConceptLevel,
    ) -> None:
        attributes = None if found is None else found.attributes
        _refuse_misfits(found, classes, attributes, task)
        several = found is not None and found.several is not None and task is None
        by_attributes = task == "attributes" or (task is None and found is None and classes is not None)
        super().__init__(table, transform, classes, by_attributes or several)
        self.found, self._classes, self._attributes = found, classes, attributes
        self.own = attributes if concept_level == "image" else None
        self.label_names: list[str] = []
        if several and found is not None and found.several is not None:
            self.label_names = found.label_names
            self._several = torch.tensor([[name in names for name in found.label_names] for names in found.several])
        self.learn(np.arange(len(table.files)) if table.is_test is None else np.flatnonzero(~table.is_test))

    @property
    def class_names(self) -> list[str]:
        """Names of the K logits: of the classes, which a photo may have several of, or of attributes."""
        return self.label_names or super().class_names

    @property
    def strata(self) -> tuple[NDArray[np.int64], list[str]]:
        """The classes; of several labels the first, or the most frequent of these where too few photos have it."""
        labels, names = super().strata
        if not self.label_names:
            return labels, names
        sizes = np.bincount(labels)
        used, strata = np.unique(np.where(sizes[labels] < SMALLEST, sizes.argmax(), labels), return_inverse=True)
        return strata.astype(np.int64), [names[index] for index in used]

    def learn(self, train_rows: NDArray[np.int64]) -> None:
        """Let the training photos, or all if there are none, vote on attributes of classes that no table describes."""
        if self.found is None:
            return
        voters = train_rows if len(train_rows) else np.arange(len(self.table.files))
        classes = self._classes
        if classes is None and self._attributes is not None and not self.label_names:
            classes = self._attributes.of_classes(self.table.labels, voters, len(self.table.class_names))
        if classes is not None:
            self.tables = class_tables(classes)
            self.tables = replace(self.tables, concept_source=None if self._classes else "vote of the training photos")
        elif self._attributes is not None:
            self.tables = ClassTables(concept_names=self._attributes.names, attribute_names=self._attributes.names)
        if self.found.part_names:
            groups, part_to_group = part_groups(self.found.part_names)
            about = [part_of_concept(name, groups) for name in self.tables.concept_names]
            self.tables = replace(
                self.tables,
                part_names=self.found.part_names,
                part_group_names=groups,
                part_to_group=torch.tensor(part_to_group),
                concept_to_part=torch.tensor(about, dtype=torch.int64) if about else None,
            )

    def add_targets(self, batch: Batch, rows: NDArray[np.int64]) -> None:
        """``concepts`` of the photo or of its class, and ``labels`` where there are several."""
        if self.label_names:
            self.add_concepts(batch, rows)
            batch["labels"] = self._several[rows]
        else:
            super().add_targets(batch, rows)

    def add_concepts(self, batch: Batch, rows: NDArray[np.int64]) -> None:
        """``concepts`` of the photo with their certainties, or of its class."""
        if self.own is None:
            super().add_concepts(batch, rows)
        else:
            batch["concepts"] = torch.from_numpy(self.own.present[rows])
            batch["concept_certainty"] = torch.from_numpy(self.own.certainty[rows])

    def unknown(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """``(n, L)``, whether a concept of a photo is unknown."""
        batch = Batch(label=torch.from_numpy(self.table.labels[rows]))  # type: ignore[typeddict-item]
        self.add_concepts(batch, rows)
        certainty = batch.get("concept_certainty", torch.ones(len(rows), 0))
        unknown: NDArray[np.bool_] = (certainty == 0).numpy()
        return unknown

    def files_to_verify(self, problems: Problems) -> list[ImageFile]:
        """The photos with their boxes and visible points, which must not lie outside."""
        files = super().files_to_verify(problems)
        return files if self.found is None else marked_files(self.table, self.found, self.rows.tolist())

    def capabilities(self, split: Split = "test") -> Capabilities:
        """Which optional fields the samples of a split carry."""
        flags = super().capabilities(split)
        if self.found is None:
            return flags
        by_image: bool | str = self.own is not None or self.found.missing.get(
            "concepts_image", "concept_level is class"
        )
        by_class: bool | str = self.tables.class_concepts is not None or "no attributes of classes"
        certainties = self.certainties(self.own is not None)
        if self.label_names:
            certainties.pop("label_certainty", None)
        return replace(
            flags,
            multi_label=self.multi_label or flags.multi_label,
            concepts_class="concept_level is image" if by_image is True else by_class,
            concepts_image=by_image,
            class_attributes=flags.class_attributes if by_class is True else by_class,
            **{"concept_certainty": by_image, **certainties},
            **{name: reason for name, reason in self.found.missing.items() if name != "concepts_image"},
        )


def _refuse_misfits(
    found: Annotations | None, classes: ClassAttributes | None, attributes: PhotoAttributes | None, task: Task | None
) -> None:
    if task == "attributes" and classes is None and attributes is None:
        raise ValueError(
            "Expected attributes for `task: attributes`, but got none. Pass an `attribute_table`, or a `table` with "
            "columns `attribute:NAME`."
        )
    if classes is not None and found is not None and found.several is not None:
        raise ValueError(
            "Expected photos of one class each for `attribute_table`, but the `table` has a column `labels`. Describe "
            "photos by columns `attribute:NAME` instead."
        )
    if classes is not None and attributes is not None and classes.names != attributes.names:
        lacking = sorted(set(classes.names) ^ set(attributes.names)) or ["their order"]
        raise ValueError(
            "Expected `attribute_table` and the columns `attribute:NAME` of `table` to be about the same attributes in "
            f"the same order, but they differ in {', '.join(lacking[:3])}."
        )
