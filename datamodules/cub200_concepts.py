"""The attributes of CUB-200-2011 as concepts: which are kept, which classes and images have them, which part they name.

Sources: Wah et al. 2011 (312 attributes), Koh et al. 2020, *Concept Bottleneck Models* (the 112 and the vote rule).
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from lightning.pytorch.utilities import rank_zero_info
from numpy.typing import NDArray

from datamodules.cub200_tables import CubTables
from datamodules.image_files import cache_folder, remember

Selection = Literal["fixed", "vote", "all"]
CONTINUOUS = "attributes/class_attribute_labels_continuous.txt"
IMAGE_LABELS = "attributes/image_attribute_labels.txt"
NAMES = "attributes.txt"
NOT_VISIBLE = 1
VOTE_CLASSES = 10
# 0-based indices into the 312 attributes; the ids in attributes.txt are one larger
# fmt: off
FIXED = (
    1, 4, 6, 7, 10, 14, 15, 20, 21, 23, 25, 29, 30, 35, 36, 38, 40, 44, 45, 50, 51, 53, 54, 56, 57, 59, 63, 64, 69,
    70, 72, 75, 80, 84, 90, 91, 93, 99, 101, 106, 110, 111, 116, 117, 119, 125, 126, 131, 132, 134, 145, 149, 151,
    152, 153, 157, 158, 163, 164, 168, 172, 178, 179, 181, 183, 187, 188, 193, 194, 196, 198, 202, 203, 208, 209,
    211, 212, 213, 218, 220, 221, 225, 235, 236, 238, 239, 240, 242, 243, 244, 249, 253, 254, 259, 260, 262, 268,
    274, 277, 283, 289, 292, 293, 294, 298, 299, 304, 305, 308, 309, 310, 311,
)
# fmt: on
FIXED_FROM = 312
PART_OF_REGION = {"bill": "beak", "head": "forehead", "upper_tail": "tail", "under_tail": "tail"}


@dataclass(frozen=True)
class Attributes:
    """The attribute tables as they are on disk, cut to K classes.

    Args:
        names: A names such as ``has_bill_shape::dagger``.
        continuous: ``(K, A)`` float, share of annotators in 0..1.
        present: ``(n, A)`` bool image labels, or None if there is no such file.
        certainty: ``(n, A)`` uint8 1..4, or None.
    """

    names: list[str]
    continuous: NDArray[np.float64]
    present: NDArray[np.bool_] | None = None
    certainty: NDArray[np.uint8] | None = None


@dataclass(frozen=True)
class Concepts:
    """The attributes that were kept as L concepts.

    Args:
        indices: ``(L,)`` int64 into the attributes.
        binary: ``(K, L)`` bool, which class has which concept.
        source: where ``binary`` comes from, to be stored with results.
    """

    indices: NDArray[np.int64]
    binary: NDArray[np.bool_]
    source: str


def attributes_missing(folder: Path) -> str | None:
    """Why there are no class attributes under ``folder``, or None if there are."""
    if _names_file(folder) is None:
        return f"no {NAMES} in or above {folder.name}"
    return None if (folder / CONTINUOUS).is_file() else f"no {CONTINUOUS} under {folder.name}"


def read_attributes(tables: CubTables) -> Attributes:
    """Read names, class table and, if there is one, the image labels.

    Args:
        tables: the other tables; :func:`attributes_missing` of their folder must be None.

    Returns:
        The attributes of the kept classes and images.

    Raises:
        ValueError: if a table is malformed or does not fit the others.
    """
    names_file = _names_file(tables.folder)
    if names_file is None:
        raise ValueError(f"Expected {NAMES} to be in or above {tables.folder}, but it is not.")
    names = [line.split()[1] for line in names_file.read_text(encoding="utf-8").splitlines() if len(line.split()) > 1]
    path = tables.folder / CONTINUOUS
    rows = [line.split() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    widths = {len(row) for row in rows}
    if widths != {len(names)} or len(rows) < len(tables.class_names):
        raise ValueError(
            f"Expected {path} to have {len(names)} columns (as {names_file.name}) and at least "
            f"{len(tables.class_names)} rows (as classes.txt), but got {len(rows)} rows of {sorted(widths)} columns. "
            "The file may be truncated: unpack it again."
        )
    percent = np.array(rows[: len(tables.class_names)], dtype=np.float64)
    if not ((percent >= 0) & (percent <= 100)).all():
        raise ValueError(f"Expected {path} to hold percentages, but got {percent.min()} to {percent.max()}.")
    labels = tables.folder / IMAGE_LABELS
    if not labels.is_file():
        return Attributes(names, percent / 100)
    table = read_image_labels(labels, tables.all_ids, len(names))
    keep = np.isin(tables.all_ids, [int(name) for name in tables.ids])
    return Attributes(names, percent / 100, table[keep, :, 0] == 1, table[keep, :, 1])


def read_image_labels(path: Path, ids: list[int], num_attributes: int) -> NDArray[np.uint8]:
    """Read ``image_attribute_labels.txt``: image, attribute, present, certainty, seconds.

    Some rows of the official file have extra columns; their first four count. The parsed table is cached by content.

    Args:
        path: the file.
        ids: image ids in ascending order, n in all.
        num_attributes: A.

    Returns:
        ``(n, A, 2)`` uint8, present and certainty.

    Raises:
        ValueError: if there is not exactly one row per image and attribute, or a row is too short.
    """
    with path.open("rb") as file:
        cached = cache_folder() / "cub200" / f"{hashlib.file_digest(file, 'sha256').hexdigest()}.npy"
    if cached.is_file():
        values: NDArray[np.int32] = np.load(cached)
    else:
        values = _parse_image_labels(path)
        buffer = io.BytesIO()
        np.save(buffer, values)
        remember(cached, buffer.getvalue())
    expected = (np.repeat(ids, num_attributes), np.tile(np.arange(1, num_attributes + 1), len(ids)))
    if len(values) != len(expected[0]) or any((values[:, i] != column).any() for i, column in enumerate(expected)):
        raise ValueError(
            f"Expected {path} to have one row per image and attribute ({len(ids)} in images.txt x {num_attributes} in "
            f"{NAMES} = {len(expected[0])}), but got {len(values)} rows for {len(np.unique(values[:, 0]))} images. The "
            "file may be truncated: unpack it again."
        )
    answers = values[:, 2:].astype(np.uint8)
    return np.reshape(answers, (len(ids), num_attributes, 2))


def _parse_image_labels(path: Path) -> NDArray[np.int32]:
    """The first four columns as integers, sorted by image and attribute."""
    try:
        values = np.loadtxt(path, dtype=np.int32, usecols=(0, 1, 2, 3), ndmin=2, comments=None)
    except ValueError as error:
        raise ValueError(f"Expected {path} to have rows of at least 4 whole numbers, but {error}.") from error
    with path.open("rb") as file:
        repaired = sum(len(line.split(maxsplit=5)) > 5 for line in file)
    if repaired:
        rank_zero_info(f"{path.name}: {repaired} rows had extra columns; their first four were used.")
    return values[np.lexsort((values[:, 1], values[:, 0]))]


def majority_votes(attributes: Attributes, labels: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which classes have which attributes by the image labels of the training images.

    Koh et al. 2020: "absent" answers for invisible parts are skipped, a tie counts as present.

    Args:
        attributes: with image labels.
        labels: ``(n,)`` class index of every image.
        rows: indices of the training images.

    Returns:
        ``(K, A)`` bool.

    Raises:
        ValueError: if there are no image labels.
    """
    if attributes.present is None or attributes.certainty is None:
        raise ValueError(f"Expected {IMAGE_LABELS} to be under `root`, but it is not; use `concept_selection: fixed`.")
    present = attributes.present[rows]
    absent = ~present & (attributes.certainty[rows] != NOT_VISIBLE)
    member = np.eye(len(attributes.continuous))[labels[rows]].T
    return np.asarray(member @ present >= member @ absent)


def select_concepts(
    attributes: Attributes, selection: Selection, labels: NDArray[np.int64], rows: NDArray[np.int64]
) -> Concepts:
    """Choose the concepts and say which classes have them.

    Args:
        attributes: the tables.
        selection: ``fixed`` keeps the published 112, ``vote`` those that at least 10 classes have by
            :func:`majority_votes`, ``all`` every attribute.
        labels: ``(n,)`` class index of every image.
        rows: indices of the training images, whose votes count.

    Returns:
        The concepts; ``binary`` holds the votes if there are image labels, else continuous >= 50 %.

    Raises:
        ValueError: if the selection is unknown or impossible with these tables.
    """
    count = len(attributes.names)
    if attributes.present is None:
        binary, source = attributes.continuous >= 0.5, "class attribute table >= 50 %"
    else:
        binary, source = majority_votes(attributes, labels, rows), "majority of training image labels"
    if selection == "fixed":
        if count != FIXED_FROM:
            raise ValueError(
                f"Expected {NAMES} to list {FIXED_FROM} attributes for `concept_selection: fixed`, but got {count}. "
                "Use `concept_selection: all`."
            )
        indices = np.array(FIXED)
    elif selection == "vote":
        indices = np.flatnonzero(majority_votes(attributes, labels, rows).sum(axis=0) >= VOTE_CLASSES)
    elif selection == "all":
        indices = np.arange(count)
    else:
        raise ValueError(
            f"Expected argument `concept_selection` to be 'fixed', 'vote' or 'all', but got {selection!r}."
        )
    if not len(indices):
        raise ValueError(
            f"Expected `concept_selection: vote` to keep attributes of at least {VOTE_CLASSES} classes, but none is "
            "left. Use `concept_selection: fixed`."
        )
    return Concepts(indices, binary[:, indices], source)


def group_of_concept(name: str) -> str:
    """The question an attribute answers: ``has_bill_shape`` of ``has_bill_shape::dagger``."""
    return name.split("::")[0]


def part_of_concept(name: str, part_groups: list[str]) -> int:
    """The part group an attribute is about.

    Args:
        name: attribute name.
        part_groups: names of the part groups.

    Returns:
        Index into ``part_groups``, or -1 if the attribute is about no single part (size, shape, whole plumage).

    Example:
        >>> part_of_concept("has_bill_shape::dagger", ["back", "beak"]), part_of_concept("has_size::small", ["back"])
        (1, -1)
    """
    region = group_of_concept(name).removeprefix("has_").rpartition("_")[0]
    part = PART_OF_REGION.get(region, region)
    return part_groups.index(part) if part in part_groups else -1


def part_groups(part_names: list[str]) -> tuple[list[str], list[int]]:
    """Merge left and right parts.

    Args:
        part_names: N names.

    Returns:
        The group names in order of first appearance, and each part's group.

    Example:
        >>> part_groups(["beak", "left eye", "right eye"])
        (['beak', 'eye'], [0, 1, 1])
    """
    merged = [name.removeprefix("left ").removeprefix("right ") for name in part_names]
    names = list(dict.fromkeys(merged))
    return names, [names.index(name) for name in merged]


def _names_file(folder: Path) -> Path | None:
    places = (folder.parent / NAMES, folder / NAMES, folder / "attributes" / NAMES)
    return next((path for path in places if path.is_file()), None)
