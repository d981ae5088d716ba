"""Classes described by binary attributes: what the attributes are, and photos that are labelled by them."""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamodules.base import Split
from datamodules.photos.data_module import AUGMENTED, PhotoDataModule
from datamodules.photos.files import read_text
from datamodules.sample import Batch, Capabilities


@dataclass(frozen=True)
class ClassAttributes:
    """Attributes of S classes.

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


def read_attribute_table(path: Path, classes: list[str]) -> ClassAttributes:
    """Read a comma-separated table: ``class`` and attribute names in the first row, then a row of 0 and 1 per class.

    Args:
        path: the file.
        classes: the classes whose rows are wanted, in order; the file may hold more.

    Returns:
        The attributes of these classes.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the table is malformed or lacks a class.
    """
    if not path.is_file():
        raise FileNotFoundError(f"Expected argument `attribute_table` to be a file, but there is none at {path}.")
    try:
        header, *lines = [row for row in csv.reader(io.StringIO(read_text(path), newline="")) if row] or [[""]]
    except csv.Error as error:
        raise ValueError(f"Expected {path} to be a comma-separated table, but {error}; is a quote open?") from error
    names, rows = header[1:], {line[0]: line[1:] for line in lines}
    wrong = [line[0] for line in lines if len(line) != len(header) or not set(line[1:]) <= {"0", "1"}]
    if len(set(names)) != len(names) or not names or len(rows) != len(lines) or wrong:
        found = f"the row of {wrong[0]!r} is none" if wrong else f"{len(names)} attributes and {len(lines)} rows"
        raise ValueError(
            f"Expected {path} to begin with a row of `class` and different attribute names and to go on with one row "
            f"of as many 0 and 1 per class, but got {found}."
        )
    lacking = [name for name in classes if name not in rows]
    if lacking:
        raise ValueError(
            f"Expected {path} to have a row for each of the {len(classes)} classes, but got none for {len(lacking)}; "
            f"the first is {lacking[0]!r}."
        )
    table = np.array([rows[name] for name in classes]) == "1"
    return ClassAttributes(names, table, table.astype(np.float64), table.astype(np.float64))


class AttributedPhotos(PhotoDataModule, ABC):
    """Photos whose classes have attributes, which may be the labels.

    ``labels`` holds the attributes of the class where ``multi_label``, and ``label`` the class either way. The tables
    below exist after ``setup`` if there are attributes; their rows are classes.
    """

    multi_label: bool
    _attributes: ClassAttributes | None = None
    concept_names: list[str]
    class_concepts: Tensor
    class_concepts_binary: Tensor
    class_attributes: Tensor

    @abstractmethod
    def attributes(self) -> ClassAttributes | None:
        """The attributes of the classes, or None without any."""

    @property
    def class_names(self) -> list[str]:
        """Names of the K logits: attributes where they are the labels, else classes."""
        attributes = (self._attributes or self.attributes()) if self.multi_label else None
        return super().class_names if attributes is None else attributes.names

    def set_class_tables(self, train_rows: NDArray[np.int64]) -> None:
        """The attributes of the classes; where they are the labels, no class weighs more than another."""
        self._attributes = self.attributes()
        if self.multi_label:
            self.class_weights = torch.ones(len(self.class_names))
        if self._attributes is None:
            return
        self.concept_names = self._attributes.names
        self.class_concepts_binary = torch.from_numpy(self._attributes.binary)
        self.class_concepts = torch.from_numpy(self._attributes.strength).float()
        self.class_attributes = torch.from_numpy(self._attributes.full).float()

    def add_targets(self, batch: Batch, rows: NDArray[np.int64]) -> None:
        """``labels`` where attributes are the labels."""
        if self.multi_label:
            batch["labels"] = self.class_concepts_binary[batch["label"]]

    def annotate(self, batch: Batch, rows: NDArray[np.int64]) -> None:
        """``concepts``: the attributes of the class."""
        if self._attributes is not None:
            batch["concepts"] = self.class_concepts_binary[batch["label"]]

    def capabilities(self, split: Split) -> Capabilities:
        """Which optional fields the samples of the split carry."""
        flags = super().capabilities(split)
        if self._attributes is None:
            return flags
        return replace(
            flags,
            multi_label=self.multi_label or flags.multi_label,
            concepts_class=True if split != "train" else AUGMENTED,
            class_attributes=True,
        )
