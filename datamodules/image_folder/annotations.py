"""What a table beside the photos says of each of them, checked and brought into the order of the photos."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protometry.datamodules.image_folder.cells import Cells, read_csv
from protometry.datamodules.image_folder.coco import read_coco
from protometry.datamodules.photos.class_attributes import DEFINITELY, UNKNOWN, PhotoAttributes
from protometry.datamodules.photos.files import HEIC, HEIC_REMEDY
from protometry.datamodules.photos.folders import EXTENSIONS, PARTS
from protometry.datamodules.photos.problems import Problems, first_few
from protometry.datamodules.sample import nfc
from protometry.run_folder.command_line.user_path import user_path

READERS: dict[str, Callable[[Path, Problems], Cells]] = {".csv": read_csv, ".json": read_coco}
CORNERS = ("x0", "y0", "x1", "y1")
COLUMNS = ("image", "label", "labels", "split", "group", "box", *CORNERS, "mask")
PART, ATTRIBUTE, CERTAINTY = PREFIXES = ("part:", "attribute:", "certainty:")
PRESENT = {"": 0, "0": 0, "1": 1, "0.0": 0, "1.0": 1}  # pandas writes a point where cells are empty
CERTAINTIES = {f"{number}{end}": number for number in range(5) for end in ("", ".0")}


@dataclass(frozen=True)
class Annotations:
    """What is known of n photos, None where the table has no such column.

    Args:
        paths: the photo of each row, as a path below the folder in the form :func:`.nfc`.
        places: what each row is called in messages.
        labels: the class.
        several: the classes, for data with several labels.
        label_names: all of them, in order.
        parts: ``train``, ``val`` or ``test``.
        groups: of photos that stay together.
        boxes: ``(n, 4)`` inclusive pixels (x0, y0, x1, y1).
        points: ``(n, N, 2)`` (x, y) in pixels, (0, 0) where not visible.
        masks: image files with the mask of the object, as ``paths``, empty where there is none.
        outlines: polygons of the object of each photo, in place of ``masks``.
        missing: capability flag -> why there is no such annotation.
        unused: columns that mean nothing here.
    """

    paths: list[str]
    places: list[str]
    labels: list[str] | None = None
    several: list[list[str]] | None = None
    label_names: list[str] = field(default_factory=list)
    parts: list[str] | None = None
    groups: list[str] | None = None
    boxes: NDArray[np.float64] | None = None
    points: NDArray[np.float32] | None = None
    visible: NDArray[np.bool_] | None = None
    part_names: list[str] = field(default_factory=list)
    masks: list[str] | None = None
    outlines: list[list[NDArray[np.float64]]] | None = None
    attributes: PhotoAttributes | None = None
    missing: dict[str, str] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)

    def in_order(self, paths: Sequence[str]) -> Annotations:
        """The same of the same photos in another order."""
        row = {path: number for number, path in enumerate(self.paths)}
        order = np.array([row[nfc(path)] for path in paths], dtype=np.int64)
        changed: dict[str, Any] = {
            name: value[order] if isinstance(value, np.ndarray) else [value[i] for i in order.tolist()]
            for name, value in vars(self).items()
            if name not in ("label_names", "part_names", "attributes", "missing", "unused") and value is not None
        }
        if self.attributes is not None:
            one = self.attributes
            changed["attributes"] = PhotoAttributes(one.names, one.present[order], one.certainty[order])
        return replace(self, **changed)


def find_table(table: str, folder: Path) -> Path:
    """The file of a table: a path, or one below the folder of the photos.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if its name has another ending than those that are read.
    """
    path = next((path for path in (user_path(table), folder / table) if path.is_file()), None)
    if path is None:
        raise FileNotFoundError(
            f"Expected argument `table` to be a file, but there is none at {user_path(table)} and none in {folder}."
        )
    if path.suffix.lower() not in READERS:
        raise ValueError(
            f"Expected argument `table` to end in {' or '.join(READERS)}, but got {path}. Of other tables, "
            "`to_csv` of pandas makes a .csv."
        )
    return path


def has_split(table: str | None, folder: Path) -> bool:
    """Whether there is a table that says how photos are divided.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it cannot be read.
    """
    if table is None:
        return False
    path = find_table(table, folder)
    return "split" in READERS[path.suffix.lower()](path, Problems(str(path), "Fix the table.")).columns


def read_annotations(path: Path, folder: Path, problems: Problems) -> Annotations:
    """Read a table; whatever is wrong with its cells is noted.

    Args:
        path: .csv or COCO's .json.
        folder: that holds the photos.
        problems: where findings are noted.

    Raises:
        ValueError: if it is no such file, or no row of it names a photo.
    """
    read = READERS[path.suffix.lower()](path, problems)
    cells, unused = _known_columns(read)
    if not cells.columns.get("image"):
        problems.raise_any()
    columns, missing = cells.columns, _incomplete(cells)
    part_names = [name.removeprefix(PART) for name in columns if name.startswith(PART)]
    points, visible = _points(cells, part_names) if part_names else (None, None)
    if points is None:
        missing["part_points"] = f"no columns `{PART}NAME` in {path.name}"
    attributes = _attributes(cells)
    if attributes is None:
        missing["concepts_image"] = f"no columns `{ATTRIBUTE}NAME` in {path.name}"
    boxes = _boxes(cells) if "box" in columns else None
    if cells.outlines:
        _refuse_shares(cells, "outlines", np.concatenate([one for each in cells.outlines for one in each]))
    masks = [_below(cells, row, "mask", folder) for row in range(len(cells.places))] if "mask" in columns else None
    if "label" in columns and "labels" not in columns:
        for row in [row for row, name in enumerate(columns["label"]) if not name]:
            cells.wrong(row, "label", "the class of the photo")
    if "split" in columns:
        for row, part in enumerate(columns["split"]):
            if part not in PARTS:
                cells.wrong(row, "split", f"one of {', '.join(PARTS)}")
    return Annotations(
        paths=[_below(cells, row, "image", folder) for row in range(len(cells.places))],
        places=[f"{path.name}, {place}" for place in cells.places],
        labels=columns.get("label"),
        several=_several(cells) if "labels" in columns else None,
        parts=columns.get("split"),
        groups=columns.get("group"),
        boxes=None if "bounding_box" in missing else boxes,
        points=points,
        visible=visible,
        part_names=part_names,
        masks=masks,
        outlines=(cells.outlines or None) if "object_mask" not in missing else None,
        attributes=attributes,
        missing=missing,
        unused=unused,
    )


def compare_with_photos(
    found: Annotations, table: Path, folder: Path, photos: Sequence[str], problems: Problems
) -> None:
    """Note rows without a photo, photos with several rows, and photos without a row."""
    there = {nfc(path) for path in photos}
    lower, ends = {path.lower(): path for path in there}, {path.rsplit("/", 1)[-1]: path for path in there}
    named, places = Counter(found.paths), dict(zip(found.paths, found.places, strict=True))
    for path, count in named.items():
        if path and count > 1:
            problems.wrong(f"{table.name} has {count} rows for {path}; give a photo one row")
        if path in there or not path:
            continue
        slashed = path.replace("\\", "/").lower()
        near = lower.get(path.lower()) or ends.get(path) or lower.get(slashed) or ends.get(slashed)
        hint = f"; it holds {near}" if near else ""
        hint += ", with / between folders" if near and "\\" in path else ""
        if not path.lower().endswith(EXTENSIONS):
            hint = f", because files of photos end in {', '.join(EXTENSIONS)}"
            hint += f". {HEIC_REMEDY}" if path.lower().endswith(HEIC) else ""
        problems.missing(f"{places[path]}: {folder} holds no photo {path}{hint}")
    if unnamed := sorted(there - named.keys()):
        problems.wrong(
            f"{table.name} has no row for {len(unnamed)} of {len(there)} photos below {folder}: {first_few(unnamed)}; "
            "add a row for each, perhaps with `image` only, or move them to another folder"
        )


def _known_columns(cells: Cells) -> tuple[Cells, list[str]]:
    """The cells of known columns, and all other columns; the four corners of a box become one column."""
    columns, name, problems = dict(cells.columns), cells.path.name, cells.problems
    if "image" not in columns:
        unnamed = "; its first column has no name" if "" in columns else ""
        problems.wrong(f"{name} has no column `image`; it has {first_few(list(filter(None, columns)))}{unnamed}")
    elif not cells.places:
        problems.wrong(f"{name} has no rows")
    unknown = [column for column in columns if column not in COLUMNS and not column.startswith(PREFIXES)]
    for column in unknown:
        columns.pop(column)
    for column in columns:
        if column in PREFIXES:
            problems.wrong(f"{name}: column `{column}` names nothing after the colon")
        if column.startswith(CERTAINTY) and f"{ATTRIBUTE}{column.removeprefix(CERTAINTY)}" not in columns:
            problems.wrong(f"{name} has `{column}`, but no column `{ATTRIBUTE}{column.removeprefix(CERTAINTY)}`")
    corners = [columns.pop(corner) for corner in CORNERS if corner in columns]
    if corners and (len(corners) < len(CORNERS) or "box" in columns):
        problems.wrong(f"{name}: expected a column `box`, or four columns {', '.join(CORNERS)}, but not some of both")
    elif corners:
        columns["box"] = [" ".join(row).strip() for row in zip(*corners, strict=True)]
    return replace(cells, columns=columns), unknown


def _incomplete(cells: Cells) -> dict[str, str]:
    """Flag -> why no use is made of boxes and masks: all photos need them, or none."""
    outlines = ["1" if polygons else "" for polygons in cells.outlines]
    kinds = {
        "bounding_box": ("box", cells.columns.get("box")),
        "object_mask": ("mask", cells.columns.get("mask") or outlines or None),
    }
    reasons = {}
    for flag, (column, values) in kinds.items():
        name = cells.path.name
        if values is None:
            reasons[flag] = f"no column `{column}` in {name}"
        elif empty := [place for place, value in zip(cells.places, values, strict=True) if not value]:
            reasons[flag] = f"{name} has no {column} for {len(empty)} of {len(values)} photos, such as {empty[0]}"
    return reasons


def _below(cells: Cells, row: int, column: str, folder: Path) -> str:
    """A path below the folder as the table gives it, in the form :func:`.nfc`; empty if it is not below."""
    cell = cells.columns[column][row]
    path = PurePath(cell)
    if path.is_absolute():
        tops = [top for top in (folder.absolute(), folder.resolve()) if path.is_relative_to(top)]
        path = path.relative_to(tops[0]) if tops else path
    if (not cell and column == "image") or path.is_absolute() or ".." in path.parts:
        cells.wrong(row, column, f"a path below {folder}")
        return ""
    return nfc(path.as_posix()) if cell else ""


def _several(cells: Cells) -> list[list[str]]:
    """The labels of each photo."""
    several = [[name.strip() for name in cell.split(";") if name.strip()] for cell in cells.columns["labels"]]
    if max(map(len, several), default=0) <= 1:
        for row in [row for row, names in enumerate(several) if re.search("[,|]", "".join(names))]:
            cells.wrong(row, "labels", "labels with `;` between them")
    return several


def _boxes(cells: Cells) -> NDArray[np.float64]:
    boxes = cells.numbers("box", CORNERS)
    for row in np.flatnonzero((boxes[:, :2] > boxes[:, 2:]).any(axis=1)).tolist():
        cells.wrong(row, "box", "x0 <= x1 and y0 <= y1, the first and last pixels of the object, not its size")
    _refuse_shares(cells, "boxes", boxes)
    return boxes


def _refuse_shares(cells: Cells, what: str, numbers: NDArray[np.floating[Any]]) -> None:
    """Note numbers that can only be shares of width and height: as pixels, they would lie in the corner of a photo.

    A single point may lie there; a box within a pixel does not.
    """
    known = numbers[~np.isnan(numbers).any(axis=-1)]
    shares = ((known >= 0) & (known <= 1)).all(axis=-1)
    if shares.size and (shares.all() or (what == "boxes" and (known[shares] % 1).any())):
        count = "all" if shares.all() else f"{shares.sum()} of {len(shares)}"
        cells.problems.wrong(
            f"{cells.path.name}: expected pixels, but the numbers of {count} {what} lie in 0..1, as shares of width "
            "and height do; multiply them by these"
        )


def _points(cells: Cells, names: list[str]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    points = np.stack([cells.numbers(f"{PART}{name}", ("x", "y")) for name in names], axis=1)
    visible = ~np.isnan(points[:, :, 0])
    for row, part in np.argwhere((points <= 0).all(axis=2)).tolist():
        cells.wrong(row, f"{PART}{names[part]}", "`x y` in the photo, or nothing where the part is not visible")
    _refuse_shares(cells, "points", points)
    return np.nan_to_num(points).astype(np.float32), visible


def _attributes(cells: Cells) -> PhotoAttributes | None:
    names = [name.removeprefix(ATTRIBUTE) for name in cells.columns if name.startswith(ATTRIBUTE)]
    if not names:
        return None
    present, certainty = [], []
    for name in names:
        given = cells.columns[f"{ATTRIBUTE}{name}"]
        present.append(_codes(cells, f"{ATTRIBUTE}{name}", PRESENT, "0, 1 or nothing"))
        sure = np.full(len(given), DEFINITELY)
        if f"{CERTAINTY}{name}" in cells.columns:
            stated = _codes(cells, f"{CERTAINTY}{name}", CERTAINTIES | {"": -1}, "0, 1, 2, 3, 4 or nothing")
            sure = np.where(stated >= 0, stated, sure)
        certainty.append(np.where([cell != "" for cell in given], sure, UNKNOWN))  # whatever is said of an empty cell
    return PhotoAttributes(names, np.stack(present, axis=1) == 1, np.stack(certainty, axis=1).astype(np.uint8))


def _codes(cells: Cells, column: str, codes: dict[str, int], expected: str) -> NDArray[np.int64]:
    values = np.array([codes.get(cell, -2) for cell in cells.columns[column]], dtype=np.int64)
    for row in np.flatnonzero(values == -2).tolist():
        cells.wrong(row, column, expected)
    return values
