"""The attribute tables of CUB-200-2011: names, shares per class and, where they are there, the answers per image."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from lightning.pytorch.utilities import rank_zero_info
from numpy.typing import NDArray

from protometry.datamodules.cub200.rows import REMEDY, numbered
from protometry.datamodules.cub200.tables import CubTable
from protometry.datamodules.photos.cache import cache_folder, recall, remember
from protometry.datamodules.photos.files import read_text
from protometry.datamodules.photos.problems import Problems

CONTINUOUS = "attributes/class_attribute_labels_continuous.txt"
IMAGE_LABELS = "attributes/image_attribute_labels.txt"
NAMES = "attributes.txt"
NOT_VISIBLE = 1


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


def attributes_missing(folder: Path) -> str | None:
    """Why there are no class attributes under ``folder``, or None if there are."""
    if _names_file(folder) is None:
        return f"no {NAMES} in or above {folder.name}"
    return None if (folder / CONTINUOUS).is_file() else f"no {CONTINUOUS} under {folder.name}"


def read_attributes(table: CubTable) -> Attributes:
    """Read names, class table and, if there is one, the image labels of the kept classes and images.

    :func:`attributes_missing` of the folder must be None.

    Raises:
        ValueError: if a table is malformed or does not fit the others.
    """
    names_file = _names_file(table.folder)
    if names_file is None:
        raise ValueError(f"Expected {NAMES} to be in or above {table.folder}, but it is not.")
    problems = Problems(f"CUB-200-2011 in {table.folder}", REMEDY)
    names = [row[1] for row in numbered(names_file.parent, NAMES, problems)]
    problems.raise_any()
    path = table.folder / CONTINUOUS
    rows = [line.split() for line in read_text(path).splitlines() if line.strip()]
    widths = {len(row) for row in rows}
    if widths != {len(names)} or len(rows) < len(table.class_names):
        raise ValueError(
            f"Expected {path} to have {len(names)} columns (as {names_file.name}) and at least "
            f"{len(table.class_names)} rows (as classes.txt), but got {len(rows)} rows of {sorted(widths)} columns. "
            "The file may be truncated: unpack it again."
        )
    try:
        percent = np.array(rows[: len(table.class_names)], dtype=np.float64)
    except ValueError as error:
        raise ValueError(f"Expected {path} to hold percentages, but {error}.") from error
    if not ((percent >= 0) & (percent <= 100)).all():
        raise ValueError(f"Expected {path} to hold percentages, but got {percent.min()} to {percent.max()}.")
    labels = table.folder / IMAGE_LABELS
    if not labels.is_file():
        return Attributes(names, percent / 100)
    answers = read_image_labels(labels, table.all_ids, len(names))
    keep = np.isin(table.all_ids, [int(file.sample_id) for file in table.files])
    return Attributes(names, percent / 100, answers[keep, :, 0] == 1, answers[keep, :, 1])


def read_image_labels(path: Path, ids: list[int], num_attributes: int) -> NDArray[np.uint8]:
    """Read ``image_attribute_labels.txt``: image, attribute, present, certainty, seconds.

    Some rows of the official file have extra columns; their first four count. The parsed table is cached by content.

    Returns:
        ``(n, A, 2)`` uint8, present and certainty.

    Raises:
        ValueError: if there is not exactly one row per image and attribute, or a row makes no sense.
    """
    with path.open("rb") as file:
        cached = cache_folder() / "cub200" / f"{hashlib.file_digest(file, 'sha256').hexdigest()}.npy"
    if content := recall(cached):
        values: NDArray[np.int32] = np.load(io.BytesIO(content))
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
    if not (np.isin(values[:, 2], (0, 1)).all() and np.isin(values[:, 3], (1, 2, 3, 4)).all()):
        raise ValueError(f"Expected {path} to say 0 or 1 with a certainty of 1 to 4, but some rows do not.")
    answers = values[:, 2:].astype(np.uint8)
    return np.reshape(answers, (len(ids), num_attributes, 2))


def _parse_image_labels(path: Path) -> NDArray[np.int32]:
    """The first four columns as integers, sorted by image and attribute."""
    try:
        values = np.loadtxt(path, dtype=np.int32, usecols=(0, 1, 2, 3), ndmin=2, comments=None, encoding="utf-8-sig")
    except ValueError as error:
        raise ValueError(f"Expected {path} to have rows of at least 4 whole numbers, but {error}.") from error
    with path.open("rb") as file:
        repaired = sum(len(line.split(maxsplit=5)) > 5 for line in file)
    if repaired:
        rank_zero_info(f"{path.name}: {repaired} rows had extra columns; their first four were used.")
    return values[np.lexsort((values[:, 1], values[:, 0]))]


def _names_file(folder: Path) -> Path | None:
    places = (folder.parent / NAMES, folder / NAMES, folder / "attributes" / NAMES)
    return next((path for path in places if path.is_file()), None)
