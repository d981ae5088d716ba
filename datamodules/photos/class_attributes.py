"""Attributes of classes and of single photos, and photos that are labelled by them."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from protometry.datamodules.photos.dataset import PhotoDataset, PhotoTable
from protometry.datamodules.photos.files import SAVE_AGAIN, delimiter_of, read_text
from protometry.datamodules.sample import Batch, Capabilities, ClassTables, nfc
from protometry.datamodules.splits import Split
from protometry.datamodules.transforms.crop_and_augment import PhotoTransform

UNKNOWN, NOT_VISIBLE, DEFINITELY = 0, 1, 4  # certainties of an attribute: not annotated, or not in the photo


@dataclass(frozen=True)
class ClassAttributes:
    """L attributes of S classes, selected from A.

    Args:
        names: of the L attributes that are used.
        binary: ``(S, L)`` bool, False where unknown.
        strength: ``(S, L)`` float in 0..1, NaN where unknown.
        full: ``(S, A)`` float in 0..1, the strengths before L attributes were selected.
    """

    names: list[str]
    binary: NDArray[np.bool_]
    strength: NDArray[np.float64]
    full: NDArray[np.float64]
    full_names: list[str]


@dataclass(frozen=True)
class PhotoAttributes:
    """L attributes of each of n photos.

    Args:
        present: ``(n, L)`` bool.
        certainty: ``(n, L)`` uint8, 0 unknown, 1 not visible, 2 guessing, 3 probably, 4 definitely.
    """

    names: list[str]
    present: NDArray[np.bool_]
    certainty: NDArray[np.uint8]

    def of_classes(self, labels: NDArray[np.int64], rows: NDArray[np.int64], num_classes: int) -> ClassAttributes:
        """The attributes of classes by a vote of the photos in ``rows`` that show whether they have it.

        A tie counts as present (Koh et al. 2020); an attribute that no photo of a class shows is absent, and one that
        no photo of the class says anything about is unknown.
        """
        certainty, own = self.certainty[rows], np.eye(num_classes, dtype=np.int64)[labels[rows]].T
        known, seen = certainty != UNKNOWN, certainty > NOT_VISIBLE
        present, absent = votes(self.present[rows] & known, seen, labels[rows], num_classes)
        share = np.where(own @ known > 0, present / np.maximum(present + absent, 1), np.nan)
        whole = np.isfinite(share).all(axis=0)
        names = [self.names[index] for index in np.flatnonzero(whole)]
        return ClassAttributes(self.names, (present >= absent) & (present > 0), share, share[:, whole], names)


def votes(
    present: NDArray[np.bool_], seen: NDArray[np.bool_], labels: NDArray[np.int64], num_classes: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How many photos of each class have an attribute, and how many show that they have not, ``(S, L)`` each.

    Args:
        present: ``(n, L)`` which photo has which attribute.
        seen: ``(n, L)`` where a photo without it counts as a vote against it.
        labels: ``(n,)`` the class of each photo.
        num_classes: S.

    Example:
        >>> present, seen = np.array([[1, 0], [0, 0]], bool), np.array([[1, 1], [1, 0]], bool)
        >>> [counts.tolist() for counts in votes(present, seen, np.array([0, 0]), 1)]
        [[[1.0, 0.0]], [[1.0, 1.0]]]
    """
    member = np.eye(num_classes)[labels].T
    return member @ present, member @ (~present & seen)


def read_attribute_table(path: Path, classes: list[str]) -> ClassAttributes:
    """Read a table of the wanted classes, in their order; commas, semicolons or tabs separate cells.

    The file may hold more classes. The first row is ``class`` and attribute names, then there is a row of numbers per
    class: 0 and 1, or how many of its photos show the attribute as a share in 0..1. From 0.5 on, a class has it.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the table is malformed or lacks a class.
    """
    if not path.is_file():
        raise FileNotFoundError(f"Expected argument `attribute_table` to be a file, but there is none at {path}.")
    try:
        text = nfc(read_text(path, SAVE_AGAIN))
        rows_of = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter_of(text))
        header, *lines = [row for row in rows_of if row] or [[""]]
    except csv.Error as error:
        raise ValueError(f"Expected {path} to be a comma-separated table, but {error}; is a quote open?") from error
    names, rows = header[1:], {line[0]: [share_of(cell) for cell in line[1:]] for line in lines}
    wrong = [line[0] for line in lines if len(line) != len(header) or None in rows[line[0]]]
    if len(set(names)) != len(names) or not names or len(rows) != len(lines) or wrong:
        got = f"the row of {wrong[0]!r} is none" if wrong else f"{len(names)} attributes and {len(lines)} rows"
        if "class" in names:
            got += "; its first column has no name, such as the numbers of rows that pandas adds: leave it out"
        raise ValueError(
            f"Expected {path} to begin with a row of `class` and different attribute names, followed by one row "
            f"of as many numbers in 0..1 per class, but got {got}."
        )
    lacking = [name for name in classes if name not in rows]
    if lacking:
        hint = f" It has {lacking[0]}.0: write both in one way." if f"{lacking[0]}.0" in rows else ""
        raise ValueError(
            f"Expected {path} to have a row for each of the {len(classes)} classes, but got none for {len(lacking)}; "
            f"the first is {lacking[0]!r}.{hint}"
        )
    table = np.array([rows[name] for name in classes], dtype=np.float64)
    return ClassAttributes(names, table >= 0.5, table, table, names)


def share_of(cell: str) -> float | None:
    """A number in 0..1, None for any other text.

    Example:
        >>> share_of("1"), share_of(".25"), share_of("2"), share_of("nan"), share_of("yes")
        (1.0, 0.25, None, None, None)
    """
    try:
        number = float(cell)
    except ValueError:
        return None
    return number if 0 <= number <= 1 else None


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
            self.tables = class_tables(attributes)

    @property
    def class_names(self) -> list[str]:
        """Names of the K logits: attributes where they are the labels, else classes."""
        return self.tables.concept_names if self.multi_label else self.table.class_names

    def add_targets(self, batch: Batch, rows: NDArray[np.int64]) -> None:
        """``concepts``, and ``labels`` where attributes are the labels, with the certainties of both."""
        self.add_concepts(batch, rows)
        if self.multi_label:
            batch["labels"] = batch["concepts"].clone()
            if "concept_certainty" in batch:
                batch["label_certainty"] = batch["concept_certainty"].clone()

    def add_concepts(self, batch: Batch, rows: NDArray[np.int64]) -> None:
        """``concepts``, the attributes of the class, with certainties if some are unknown of some class."""
        truth = self.tables.class_truth
        if truth is not None:
            of_images = truth[batch["label"]]
            batch["concepts"] = of_images == 1
            if truth.is_floating_point():
                batch["concept_certainty"] = torch.where(of_images.isnan(), UNKNOWN, DEFINITELY).to(torch.uint8)

    def capabilities(self, split: Split = "test") -> Capabilities:
        """Which optional fields the samples of a split carry."""
        flags = super().capabilities(split)
        if not self.tables.concept_names:
            return flags
        return replace(
            flags,
            multi_label=self.multi_label or flags.multi_label,
            concepts_class=True,
            class_attributes=self.tables.class_attributes is not None or "no attribute is known of every class",
            **self.certainties(),
        )

    def certainties(self, by_image: bool = False) -> dict[str, bool]:
        """The flags of certainties, which there are if photos have their own, or if something is unknown of a class."""
        truth = self.tables.class_truth
        if not (by_image or (truth is not None and truth.is_floating_point())):
            return {}
        return {"concept_certainty": True} | ({"label_certainty": True} if self.multi_label else {})


def class_tables(attributes: ClassAttributes) -> ClassTables:
    """What classes are by their attributes."""
    return ClassTables(
        concept_names=attributes.names,
        class_concepts=torch.from_numpy(attributes.strength).float(),
        class_concepts_binary=torch.from_numpy(attributes.binary),
        class_attributes=torch.from_numpy(attributes.full).float() if attributes.full_names else None,
        attribute_names=attributes.full_names,
    )
