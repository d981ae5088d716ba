"""The annotation tables of CUB-200-2011: read once, compared with each other, cut to the first classes.

All ids in the files are 1-based, ours are 0-based except ``sample_id``, which stays the official image id. Tables are
split on white space, so line ends of any kind are fine.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datamodules.download import Archive
from datamodules.image_files import ImageFile, Problems, locate, read_text

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
    "`--data.download true` with a `root` that is missing or empty."
)
OFFICIAL_CLASSES = 200
OFFICIAL_TRAIN_TEST = (5994, 5794)
IMAGES, LABELS, CLASSES = "images.txt", "image_class_labels.txt", "classes.txt"
SPLIT, BOXES = "train_test_split.txt", "bounding_boxes.txt"
PARTS, PART_LOCATIONS = "parts/parts.txt", "parts/part_locs.txt"
MASKS = "segmentations"


@dataclass(frozen=True)
class CubTables:
    """What the tables say about n images, in the order of the official image id.

    Args:
        folder: the official folder.
        class_names: K names.
        ids: official image ids.
        paths: image paths below ``images/``.
        labels: ``(n,)`` int64 class indices.
        is_test: ``(n,)`` bool, the official split.
        boxes: ``(n, 4)`` float x, y, width, height in pixels.
        part_names: N names in file order.
        points: ``(n, N, 2)`` float x, y in pixels, (0, 0) where invisible.
        visible: ``(n, N)`` bool.
        all_ids: ids of all images in the tables, also of classes that were cut off.
    """

    folder: Path
    class_names: list[str]
    ids: list[str]
    paths: list[str]
    labels: NDArray[np.int64]
    is_test: NDArray[np.bool_]
    boxes: NDArray[np.float64]
    part_names: list[str]
    points: NDArray[np.float64]
    visible: NDArray[np.bool_]
    all_ids: list[int]


def find_folder(root: str) -> Path:
    """The official folder at or below ``root``.

    Raises:
        FileNotFoundError: if it is neither.
    """
    return locate(root, FOLDER, CLASSES, REMEDY)


def read_class_names(root: str, classes: int | None) -> list[str]:
    """Names of the first classes.

    Args:
        root: see :class:`datamodules.Cub200`.
        classes: how many; all if None.

    Returns:
        Names such as ``001.Black_footed_Albatross``.

    Raises:
        FileNotFoundError: if the folder is not found.
        ValueError: if the table is malformed or has fewer classes.
    """
    folder = find_folder(root)
    problems = Problems(f"CUB-200-2011 in {folder}", REMEDY)
    names = [row[1] for row in numbered(_rows(folder, CLASSES, 2, problems), CLASSES, problems)]
    problems.raise_any()
    if classes is not None and not 2 <= classes <= len(names):
        raise ValueError(
            f"Expected argument `classes` to be between 2 and the {len(names)} classes in {folder / CLASSES}, but got "
            f"{classes}."
        )
    return names[:classes]


def read_tables(root: str, classes: int | None = None) -> CubTables:
    """Read and compare the tables.

    Args:
        root: see :class:`datamodules.Cub200`.
        classes: keep the first classes only.

    Returns:
        The tables of the kept classes.

    Raises:
        FileNotFoundError: if the folder or a table is missing.
        ValueError: if a table is malformed or two tables disagree; all findings are in one message.
    """
    class_names = read_class_names(root, classes)
    folder = find_folder(root)
    problems = Problems(f"CUB-200-2011 in {folder}", REMEDY)
    images = sorted((int(row[0]), row[1]) for row in _rows(folder, IMAGES, 2, problems))
    columns = {LABELS: 2, SPLIT: 2, BOXES: 5, PART_LOCATIONS: 5}
    tables = {name: _numbers(folder, name, count, problems) for name, count in columns.items()}
    part_names = [" ".join(row[1:]) for row in numbered(_rows(folder, PARTS, 2, problems), PARTS, problems)]
    problems.raise_any()
    _compare(tables, [image for image, _ in images], len(part_names), problems)
    _check_values(tables, problems)
    problems.raise_any()
    labels = tables[LABELS][:, 1].astype(np.int64) - 1
    is_test = tables[SPLIT][:, 1] == 0
    _check_classes(folder, labels, is_test, problems)
    problems.raise_any()
    keep = labels < len(class_names)
    parts = tables[PART_LOCATIONS].reshape(len(images), len(part_names), 5)[keep]
    kept = [image for image, wanted in zip(images, keep, strict=True) if wanted]
    return CubTables(
        folder=folder,
        class_names=class_names,
        ids=[str(image) for image, _ in kept],
        paths=[path for _, path in kept],
        labels=labels[keep],
        is_test=is_test[keep],
        boxes=tables[BOXES][keep, 1:],
        part_names=part_names,
        points=parts[:, :, 2:4],
        visible=parts[:, :, 4] == 1,
        all_ids=[image for image, _ in images],
    )


def mask_folder(folder: Path) -> Path | None:
    """Where the optional masks lie, beside or inside the official folder."""
    return next((place / MASKS for place in (folder, folder.parent) if (place / MASKS).is_dir()), None)


def image_files(tables: CubTables) -> list[ImageFile]:
    """Image and mask file of every image in the tables."""
    masks = mask_folder(tables.folder)
    return [
        ImageFile(name, tables.folder / "images" / path, masks / Path(path).with_suffix(".png") if masks else None)
        for name, path in zip(tables.ids, tables.paths, strict=True)
    ]


def _rows(folder: Path, name: str, columns: int, problems: Problems) -> list[list[str]]:
    """Rows of a table whose first column is a whole number; a last text column may contain spaces."""
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


def numbered(rows: list[list[str]], name: str, problems: Problems) -> list[list[str]]:
    """Rows sorted by their ids, which must count from 1, because other tables refer to them.

    Args:
        rows: whose first column is the id.
        name: of the table.
        problems: where a gap is noted.
    """
    missing = {str(number) for number in range(1, len(rows) + 1)}
    for number, row in enumerate(rows, start=1):
        if row[0] not in missing:
            problems.wrong(
                f"{name}, row {number}: expected the ids 1..{len(rows)}, each once, but got {' '.join(row)!r}"
            )
            return rows
        missing.remove(row[0])
    return sorted(rows, key=lambda row: int(row[0]))


def _numbers(folder: Path, name: str, columns: int, problems: Problems) -> NDArray[np.float64]:
    """A table of numbers, sorted by its first two columns."""
    path, nothing = folder / name, np.zeros((0, columns))
    if not path.is_file() or not path.read_bytes().strip():
        _rows(folder, name, columns, problems)
        return nothing
    try:
        table = np.loadtxt(path, usecols=range(columns), ndmin=2, comments=None)
    except ValueError as error:
        if _rows(folder, name, columns, problems):  # rows are long enough, so their content is wrong
            problems.wrong(f"{name}: expected numbers only, but {error}")
        return nothing
    broken = np.flatnonzero(~np.isfinite(table).all(axis=1))
    if len(broken):
        problems.wrong(f"{name}, row {broken[0] + 1}: expected finite numbers, but got {table[broken[0]]}")
        return nothing
    return table[np.lexsort((table[:, 1], table[:, 0]))]


def _compare(tables: dict[str, NDArray[np.float64]], ids: list[int], num_parts: int, problems: Problems) -> None:
    """Every table must have one row per image of ``images.txt``, the part table one per image and part."""
    for name, table in tables.items():
        found, expected, unit = table[:, :1], np.array(ids)[:, None], f"images as in {IMAGES}"
        if name == PART_LOCATIONS:
            parts = np.arange(1, num_parts + 1)
            found, expected = table[:, :2], np.stack([np.repeat(ids, num_parts), np.tile(parts, len(ids))], axis=1)
            unit = f"(image, part) rows for {len(ids)} images in {IMAGES} x {num_parts} parts in {PARTS}"
        if np.array_equal(found, expected):
            continue
        shared = min(len(found), len(expected))
        differs = np.flatnonzero((found[:shared] != expected[:shared]).any(axis=1))
        at = differs[0] if len(differs) else shared
        first = min(int(side[at, 0]) for side in (found, expected) if at < len(side))
        problems.wrong(
            f"{name}: expected {len(expected)} {unit}, but got {len(found)}; the first id that differs is {first}"
        )


def _check_values(tables: dict[str, NDArray[np.float64]], problems: Problems) -> None:
    """Classes are whole numbers, boxes have a size, flags are 0 or 1."""
    labels, boxes = tables[LABELS], tables[BOXES]
    for row in labels[labels[:, 1] % 1 != 0][:1]:
        problems.wrong(f"{LABELS}: expected whole numbers, but got class {row[1]:g} for image {row[0]:g}")
    for row in boxes[(boxes[:, 3:] <= 0).any(axis=1)][:1]:
        problems.wrong(f"{BOXES}: expected a box with a size, but got {row[3]:g} x {row[4]:g} for image {row[0]:g}")
    for name, column, meaning in ((SPLIT, 1, "training image"), (PART_LOCATIONS, 4, "visible")):
        other = np.flatnonzero(~np.isin(tables[name][:, column], (0, 1)))
        if len(other):
            row = tables[name][other[0]]
            problems.wrong(f"{name}: expected 0 or 1 ({meaning}), but got {row[column]:g} for image {row[0]:g}")


def _check_classes(folder: Path, labels: NDArray[np.int64], is_test: NDArray[np.bool_], problems: Problems) -> None:
    """Labels must name classes, classes must have images, and the full set must have the official totals."""
    names = [row[1] for row in numbered(_rows(folder, CLASSES, 2, problems), CLASSES, problems)]
    if labels.min() < 0 or labels.max() >= len(names):
        problems.wrong(f"{LABELS}: expected classes 1..{len(names)} as in {CLASSES}, but got {labels.max() + 1}")
        return
    for empty in np.flatnonzero(np.bincount(labels, minlength=len(names)) == 0):
        problems.wrong(f"{LABELS}: class {names[empty]!r} has 0 images")
    totals = (int((~is_test).sum()), int(is_test.sum()))
    if len(names) == OFFICIAL_CLASSES and totals != OFFICIAL_TRAIN_TEST:
        problems.wrong(f"{SPLIT}: expected (train, test) counts {OFFICIAL_TRAIN_TEST}, but got {totals}")
