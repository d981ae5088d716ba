"""The annotation tables of CUB-200-2011, compared with each other and cut to the first classes.

All ids in the files are 1-based, ours are 0-based except ``sample_id``, which stays the official image id.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from protometry.datamodules.cub200.rows import (
    ARCHIVES,
    BOXES,
    CLASSES,
    FOLDER,
    IMAGES,
    LABELS,
    MARKERS,
    MASKS,
    OFFICIAL_CLASSES,
    OFFICIAL_TRAIN_TEST,
    PART_LOCATIONS,
    PARTS,
    REMEDY,
    SPLIT,
    numbered,
    numbers,
    text_rows,
)
from protometry.datamodules.photos.dataset import PhotoTable
from protometry.datamodules.photos.files import locate, on_disk
from protometry.datamodules.photos.problems import Problems
from protometry.datamodules.photos.verify import ImageFile, Mark
from protometry.datamodules.sample import nfc
from protometry.datamodules.transforms.placement import inclusive_boxes


@dataclass(frozen=True, kw_only=True)
class CubTable(PhotoTable):
    """What the tables say about the photos of the kept classes, in the order of the official image id.

    Args:
        part_names: names of the points in file order; those that are not visible hold (0, 0). None without part tables.
        all_ids: ids of all photos in the tables, also of classes that were cut off.
    """

    part_names: list[str]
    all_ids: list[int]


def read_tables(root: str, classes: int | None = None) -> CubTable:
    """Read and compare the tables, and cut them to the first classes.

    Raises:
        FileNotFoundError: if the folder or a table is missing.
        ValueError: if a table is malformed, two tables disagree or there are fewer classes; all findings of a step are
            in one message.
    """
    folder = locate(root, FOLDER, MARKERS, REMEDY)
    problems = Problems(f"CUB-200-2011 in {folder}", REMEDY)
    names = [row[1] for row in numbered(folder, CLASSES, problems)]
    problems.raise_any()
    if classes is not None and not 2 <= classes <= len(names):
        raise ValueError(
            f"Expected argument `classes` to be between 2 and the {len(names)} classes in {folder / CLASSES}, but got "
            f"{classes}."
        )
    images = sorted((int(row[0]), row[1]) for row in text_rows(folder, IMAGES, 2, problems))
    columns = {LABELS: 2, SPLIT: 2, BOXES: 5}
    part_names: list[str] = []
    if parts_missing(folder) is None:
        columns[PART_LOCATIONS] = 5
        part_names = [" ".join(row[1:]) for row in numbered(folder, PARTS, problems)]
    tables = {name: numbers(folder, name, count, problems) for name, count in columns.items()}
    problems.raise_any()
    ids = [image for image, _ in images]
    _compare(tables, ids, len(part_names), problems)
    _check_values(tables, problems)
    problems.raise_any()
    labels = tables[LABELS][:, 1].astype(np.int64) - 1
    is_test = tables[SPLIT][:, 1] == 0
    _check_classes(names, ids, labels, is_test, problems)
    problems.raise_any()
    _check_paths(names, images, labels, problems)
    problems.raise_any()
    keep = labels < (classes or len(names))
    parts = None
    if PART_LOCATIONS in tables:
        parts = tables[PART_LOCATIONS].reshape(len(images), len(part_names), 5)[keep]
    boxes = tables[BOXES][keep, 1:]
    return CubTable(
        dataset="cub200",
        folder=folder,
        class_names=names[:classes],
        files=_image_files(folder, [image for image, kept in zip(images, keep, strict=True) if kept]),
        labels=labels[keep],
        is_test=is_test[keep],
        boxes=inclusive_boxes(np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1)),
        points=None if parts is None else parts[:, :, 2:4].astype(np.float32),
        visible=None if parts is None else parts[:, :, 4] == 1,
        part_names=part_names,
        all_ids=ids,
    )


def parts_missing(folder: Path) -> str | None:
    """Why there are no part points under ``folder``; None if there are, or if one of their two tables is lost."""
    there = any((folder / name).exists() for name in (PARTS, PART_LOCATIONS))
    return None if there else f"no {PART_LOCATIONS} under root"


def mask_folder(folder: Path) -> Path | None:
    """Where the optional masks lie, next to or inside the official folder."""
    return next((place / MASKS for place in (folder, folder.parent) if (place / MASKS).is_dir()), None)


def _image_files(folder: Path, images: list[tuple[int, str]]) -> list[ImageFile]:
    """The image and mask files of images, given their ids and paths."""
    masks = mask_folder(folder)
    sources = (f"{IMAGES} names it", f"it is part of {ARCHIVES[1].name}, {ARCHIVES[1].url}")
    return [
        ImageFile(
            str(image),
            on_disk(folder / "images", path),
            on_disk(masks, str(Path(path).with_suffix(".png"))) if masks else None,
            sources=sources,
        )
        for image, path in images
    ]


def marks_of(table: CubTable, row: int) -> tuple[Mark, ...]:
    """The box and the visible points of a photo, which must not lie outside it."""
    image = table.files[row].sample_id
    points = [
        f"{PART_LOCATIONS}, image {image}: the visible point of part {i + 1}" for i in range(len(table.part_names))
    ]
    return table.marks(row, f"{BOXES}, image {image}: the box", points)


def _compare(tables: dict[str, NDArray[np.float64]], ids: list[int], num_parts: int, problems: Problems) -> None:
    """Every table must have one row per image of ``images.txt``, the part table one per image and part."""
    for name, table in tables.items():
        actual, expected, unit = table[:, :1], np.array(ids)[:, None], f"images as in {IMAGES}"
        if name == PART_LOCATIONS:
            parts = np.arange(1, num_parts + 1)
            actual, expected = table[:, :2], np.stack([np.repeat(ids, num_parts), np.tile(parts, len(ids))], axis=1)
            unit = f"(image, part) rows for {len(ids)} images in {IMAGES} x {num_parts} parts in {PARTS}"
        if np.array_equal(actual, expected):
            continue
        shared = min(len(actual), len(expected))
        differs = np.flatnonzero((actual[:shared] != expected[:shared]).any(axis=1))
        at = differs[0] if len(differs) else shared
        first = min(int(side[at, 0]) for side in (actual, expected) if at < len(side))
        problems.wrong(
            f"{name}: expected {len(expected)} {unit}, but got {len(actual)}; the first id that differs is {first}"
        )


def _check_values(tables: dict[str, NDArray[np.float64]], problems: Problems) -> None:
    """Classes are whole numbers, boxes have a size, flags are 0 or 1."""
    labels, boxes = tables[LABELS], tables[BOXES]
    for row in labels[labels[:, 1] % 1 != 0][:1]:
        problems.wrong(f"{LABELS}: expected whole numbers, but got class {row[1]:g} for image {row[0]:g}")
    for row in boxes[(boxes[:, 3:] <= 0).any(axis=1)][:1]:
        problems.wrong(f"{BOXES}: expected a box with a size, but got {row[3]:g} x {row[4]:g} for image {row[0]:g}")
    for name, column, meaning in ((SPLIT, 1, "training image"), (PART_LOCATIONS, 4, "visible")):
        if name not in tables:
            continue
        other = np.flatnonzero(~np.isin(tables[name][:, column], (0, 1)))
        if len(other):
            row = tables[name][other[0]]
            problems.wrong(f"{name}: expected 0 or 1 ({meaning}), but got {row[column]:g} for image {row[0]:g}")


def _check_classes(
    names: list[str], ids: list[int], labels: NDArray[np.int64], is_test: NDArray[np.bool_], problems: Problems
) -> None:
    """Labels must name classes, classes must have images, and the full set must have the official totals."""
    outside = np.flatnonzero((labels < 0) | (labels >= len(names)))
    if len(outside):
        problems.wrong(
            f"{LABELS}: expected classes 1..{len(names)} as in {CLASSES}, but got {labels[outside[0]] + 1} for image "
            f"{ids[outside[0]]}"
        )
        return
    for empty in np.flatnonzero(np.bincount(labels, minlength=len(names)) == 0):
        problems.wrong(f"{LABELS}: class {names[empty]!r} has 0 images")
    totals = (int((~is_test).sum()), int(is_test.sum()))
    if len(names) == OFFICIAL_CLASSES and totals != OFFICIAL_TRAIN_TEST:
        problems.wrong(f"{SPLIT}: expected (train, test) counts {OFFICIAL_TRAIN_TEST}, but got {totals}")


def _check_paths(
    names: list[str], images: list[tuple[int, str]], labels: NDArray[np.int64], problems: Problems
) -> None:
    """No photo may be listed twice, and each must lie in the folder of its class."""
    first: dict[str, int] = {}
    for (image, path), label in zip(images, labels.tolist(), strict=True):
        if path in first:
            problems.wrong(f"{IMAGES}: {path} is listed for image {first[path]} and again for image {image}")
        first.setdefault(path, image)
        if nfc(path.split("/")[0]) != nfc(names[label]):
            problems.wrong(f"{IMAGES}, image {image}: expected {path} to lie in {names[label]}/, the class of {LABELS}")
