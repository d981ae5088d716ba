"""The files of CUB-200-2011 and the rows of its tables.

Tables are split on white space, so line ends of any kind are fine.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from protometry.datamodules.photos.download import Archive
from protometry.datamodules.photos.files import read_text
from protometry.datamodules.photos.problems import Problems

FOLDER = "CUB_200_2011"
ARCHIVES = (
    Archive(
        "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
        "97eceeb196236b17998738112f37df78",
        1_150_585_339,
    ),
    Archive(
        "https://data.caltech.edu/records/w9d68-gec53/files/segmentations.tgz",
        "4d47ba1228eae64f2fa547c47bc65255",
        39_272_883,
    ),
)
REMEDY = (
    f"Get {ARCHIVES[0].url} (1.15 GB, md5 {ARCHIVES[0].md5}), unpack it so that `root` holds {FOLDER}/, or pass "
    "`download: true` with a `root` that is missing or empty."
)
OFFICIAL_CLASSES = 200
OFFICIAL_TRAIN_TEST = (5994, 5794)
IMAGES, LABELS, CLASSES = "images.txt", "image_class_labels.txt", "classes.txt"
SPLIT, BOXES = "train_test_split.txt", "bounding_boxes.txt"
PARTS, PART_LOCATIONS = "parts/parts.txt", "parts/part_locs.txt"
MASKS = "segmentations"
MARKERS = (IMAGES, LABELS)  # AwA2 has a classes.txt too


def text_rows(folder: Path, name: str, columns: int, problems: Problems) -> list[list[str]]:
    """Rows of a table whose first column is a whole number, none where something is wrong.

    A last text column may contain spaces.
    """
    path = folder / name
    if not path.is_file():
        problems.missing(f"{name} is missing; it is part of {ARCHIVES[0].name}")
        return []
    rows = [line.split() for line in read_text(path).splitlines() if line.strip()]
    if not rows:
        problems.wrong(f"{name} is empty")
    for number, row in enumerate(rows, start=1):
        if len(row) < columns or not row[0].isdecimal():
            problems.wrong(
                f"{name}, row {number}: expected {columns} columns beginning with an id, but got {' '.join(row)!r}; "
                "the file may be truncated"
            )
            return []
    return rows


def numbered(folder: Path, name: str, problems: Problems) -> list[list[str]]:
    """Rows of names, sorted by their ids, which must count from 1, because other tables refer to them."""
    rows = text_rows(folder, name, 2, problems)
    missing = {str(number) for number in range(1, len(rows) + 1)}
    for number, row in enumerate(rows, start=1):
        if row[0] not in missing:
            problems.wrong(
                f"{name}, row {number}: expected the ids 1..{len(rows)}, each once, but got {' '.join(row)!r}"
            )
            return rows
        missing.remove(row[0])
    return sorted(rows, key=lambda row: int(row[0]))


def numbers(folder: Path, name: str, columns: int, problems: Problems) -> NDArray[np.float64]:
    """A table of finite numbers, sorted by its first two columns; no rows where something is wrong."""
    path, nothing = folder / name, np.zeros((0, columns))
    if not path.is_file() or not path.read_bytes().strip():
        text_rows(folder, name, columns, problems)
        return nothing
    try:
        table = np.loadtxt(path, usecols=range(columns), ndmin=2, comments=None, encoding="utf-8-sig")
    except ValueError as error:
        if text_rows(folder, name, columns, problems):  # rows are long enough, so their content is wrong
            problems.wrong(f"{name}: expected numbers only, but {error}")
        return nothing
    broken = np.flatnonzero(~np.isfinite(table).all(axis=1))
    if len(broken):
        problems.wrong(f"{name}, row {broken[0] + 1}: expected finite numbers, but got {table[broken[0]]}")
        return nothing
    return table[np.lexsort((table[:, 1], table[:, 0]))]
