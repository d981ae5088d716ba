"""Classes described by binary attributes, and photos that are labelled by them."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from protometry.datamodules.photos.dataset import PhotoDataset, PhotoTable
from protometry.datamodules.photos.files import read_text
from protometry.datamodules.sample import Batch, Capabilities, ClassTables, nfc
from protometry.datamodules.splits import Split
from protometry.datamodules.transforms.photo import PhotoTransform


@dataclass(frozen=True)
class ClassAttributes:
    """L attributes of S classes, selected from A.

    Args:
        names: of the L attributes that are used.
        binary: ``(S, L)`` bool.
        strength: ``(S, L)`` float in 0..1.
        full: ``(S, A)`` float in 0..1, the strengths before L attributes were selected.
    """

    names: list[str]
    binary: NDArray[np.bool_]
    strength: NDArray[np.float64]
    full: NDArray[np.float64]
    full_names: list[str]


def read_attribute_table(path: Path, classes: list[str]) -> ClassAttributes:
    """Read a comma-separated table of the wanted classes, in their order; the file may hold more.

    The first row is ``class`` and attribute names, then there is a row of 0 and 1 per class.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the table is malformed or lacks a class.
    """
    if not path.is_file():
        raise FileNotFoundError(f"Expected argument `attribute_table` to be a file, but there is none at {path}.")
    try:
        header, *lines = [row for row in csv.reader(io.StringIO(nfc(read_text(path)), newline="")) if row] or [[""]]
    except csv.Error as error:
        raise ValueError(f"Expected {path} to be a comma-separated table, but {error}; is a quote open?") from error
    names, rows = header[1:], {line[0]: line[1:] for line in lines}
    wrong = [line[0] for line in lines if len(line) != len(header) or not set(line[1:]) <= {"0", "1"}]
    if len(set(names)) != len(names) or not names or len(rows) != len(lines) or wrong:
        got = f"the row of {wrong[0]!r} is none" if wrong else f"{len(names)} attributes and {len(lines)} rows"
        raise ValueError(
            f"Expected {path} to begin with a row of `class` and different attribute names, followed by one row "
            f"of as many 0s and 1s per class, but got {got}."
        )
    lacking = [name for name in classes if name not in rows]
    if lacking:
        raise ValueError(
            f"Expected {path} to have a row for each of the {len(classes)} classes, but got none for {len(lacking)}; "
            f"the first is {lacking[0]!r}."
        )
    table = np.array([rows[name] for name in classes]) == "1"
    return ClassAttributes(names, table, table.astype(np.float64), table.astype(np.float64), names)


class AttributedDataset(PhotoDataset):
    """Photos whose source classes have attributes, which may be the labels.

    ``labels`` holds the attributes of the class where ``multi_label``, and ``label`` the class either way.
    """

    def __init__(
        self, table: PhotoTable, transform: PhotoTransform, attributes: ClassAttributes | None, multi_label: bool
    ) -> None:
        super().__init__(table, transform)
        self.multi_label = multi_label
        if attributes is not None:
            self.tables = ClassTables(
                concept_names=attributes.names,
                class_concepts=torch.from_numpy(attributes.strength).float(),
                class_concepts_binary=torch.from_numpy(attributes.binary),
                class_attributes=torch.from_numpy(attributes.full).float(),
                attribute_names=attributes.full_names,
            )

    @property
    def class_names(self) -> list[str]:
        """Names of the K logits: attributes where they are the labels, else classes."""
        return self.tables.concept_names if self.multi_label else self.table.class_names

    def add_targets(self, batch: Batch, rows: NDArray[np.int64]) -> None:
        """``concepts``, the attributes of the class, and ``labels`` where attributes are the labels."""
        if self.tables.class_concepts_binary is not None:
            batch["concepts"] = self.tables.class_concepts_binary[batch["label"]]
            if self.multi_label:
                batch["labels"] = batch["concepts"].clone()

    def capabilities(self, split: Split = "test") -> Capabilities:
        """Which optional fields the samples of a split carry."""
        flags = super().capabilities(split)
        if not self.tables.concept_names:
            return flags
        return replace(
            flags,
            multi_label=self.multi_label or flags.multi_label,
            concepts_class=True,
            class_attributes=True,
        )
