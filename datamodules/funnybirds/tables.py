"""The JSON tables of FunnyBirds (Hesse et al. 2023): the classes, and what each image was drawn with.

Parts are always in the order beak, eye, foot, tail, wing. A part that is present may still be hidden by others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from protometry.datamodules.bird_parts import PART_NAMES
from protometry.datamodules.funnybirds.part_maps import MAX_OBJECTS
from protometry.datamodules.photos.files import locate
from protometry.datamodules.photos.problems import Problems
from protometry.run_folder.schema import Record, check_content, read_json

FOLDER = "FunnyBirds"
URL = "https://download.visinf.tu-darmstadt.de/data/funnybirds/FunnyBirds.zip"
REMEDY = (
    f"Get {URL} (about 1.6 GB), unpack it so that `root` holds {FOLDER}/, or pass `download: true` with a `root` "
    "that is missing or empty."
)
UNPACK = "The file may be truncated: unpack it again."
OFFICIAL_CLASSES = 50
OFFICIAL_SIZES = {"train": 50_000, "test": 500}
CLASSES, PARTS, SUBSET = "classes.json", "parts.json", "subset.json"
PLACEHOLDER = "placeholder"
REMOVED = (PLACEHOLDER, "")
Part = Literal["beak", "eye", "foot", "tail", "wing"]


@dataclass(frozen=True)
class BirdClasses:
    """Which birds the classes are.

    Args:
        variants: part -> (model, colour or None) of its variants.
        table: ``(K, 5)`` int64 variant of each part.
        official: official index of each class; 0..K-1 unless the classes are a subset.
    """

    folder: Path
    variants: dict[str, list[tuple[str, str | None]]]
    table: NDArray[np.int64]
    official: list[int]

    @property
    def variant_names(self) -> dict[str, list[str]]:
        """Part -> names of its variants, such as "red tail01"."""
        return {
            part: [" ".join([*([color] if color else []), Path(model).stem]) for model, color in variants]
            for part, variants in self.variants.items()
        }


@dataclass(frozen=True)
class Scenes:
    """What the n images of one split were drawn with, in the order of ``dataset_<split>.json``.

    Args:
        kept: ``(n, 5)`` bool, whether each part was drawn.
        objects: ``(n,)`` int64 number of background objects.
    """

    split: str
    labels: NDArray[np.int64]
    kept: NDArray[np.bool_]
    objects: NDArray[np.int64]

    def file(self, row: int) -> str:
        """Class folder and file name of an image.

        Example:
            >>> Scenes("test", np.array([3]), np.ones((1, 5), bool), np.array([0])).file(0)
            '3/000000.png'
        """
        return f"{self.labels[row]}/{row:06d}.png"

    def sample_id(self, row: int) -> str:
        """Path of an image relative to the official folder."""
        return f"{self.split}/{self.file(row)}"


def table_name(split: str) -> str:
    """Name of the table of one split."""
    return f"dataset_{split}.json"


class Variant(Record):
    """An entry of ``parts.json``."""

    model: str
    color: str | None = None


class Bird(Record):
    """An entry of ``classes.json``."""

    class_idx: int
    parts: Annotated[dict[Part, int], Field(min_length=len(PART_NAMES))]


class Subset(Record):
    """The content of ``subset.json``."""

    official_class_idx: list[int]


SCHEMAS: dict[str, Any] = {
    PARTS: Annotated[dict[Part, list[Variant]], Field(min_length=len(PART_NAMES))],
    CLASSES: Annotated[list[Bird], Field(min_length=2)],
    SUBSET: Subset,
}


def read_classes(root: str) -> BirdClasses:
    """Read ``classes.json``, ``parts.json`` and, if there is one, ``subset.json``.

    Raises:
        FileNotFoundError: if the folder or a table is not found.
        ValueError: if a table is malformed or two tables disagree.
    """
    folder = locate(root, FOLDER, CLASSES, REMEDY)
    problems = Problems(f"FunnyBirds in {folder}", REMEDY)
    names = [PARTS, CLASSES, SUBSET] if (folder / SUBSET).exists() else [PARTS, CLASSES]
    tables = {name: _read(folder, name, SCHEMAS[name], problems) for name in names}
    problems.raise_any()
    variants = {part: [(each["model"], each.get("color")) for each in tables[PARTS][part]] for part in PART_NAMES}
    for part, several in variants.items():
        if len(set(several)) < len(several):
            problems.wrong(f"{PARTS}: expected the variants of {part} to differ in model or color, but some are equal")
    rows = [[bird["parts"][part] for part in PART_NAMES] for bird in tables[CLASSES]]
    for index, (bird, row) in enumerate(zip(tables[CLASSES], rows, strict=True)):
        if bird["class_idx"] != index:
            problems.wrong(f"{CLASSES}, entry {index}: expected `class_idx` to be {index}, but got {bird['class_idx']}")
        for part, variant in zip(PART_NAMES, row, strict=True):
            if not 0 <= variant < len(variants[part]):
                problems.wrong(
                    f"{CLASSES}, entry {index}: expected the variant of {part} to be 0 to {len(variants[part]) - 1} as "
                    f"in {PARTS}, but got {variant}"
                )
    official = tables[SUBSET]["official_class_idx"] if SUBSET in tables else list(range(len(rows)))
    if len(official) != len(rows):
        problems.wrong(f"{SUBSET}: expected `official_class_idx` to hold {len(rows)} integers, but got {official}")
    problems.raise_any()
    return BirdClasses(folder=folder, variants=variants, table=np.array(rows, dtype=np.int64), official=official)


def read_scenes(classes: BirdClasses) -> dict[str, Scenes]:
    """What the images of each split were drawn with, from ``dataset_train.json`` and ``dataset_test.json``.

    Raises:
        FileNotFoundError: if a table is missing.
        ValueError: if a table is malformed or does not agree with the classes; all findings are in one message.
    """
    problems = Problems(f"FunnyBirds in {classes.folder}", REMEDY)
    scenes = {}
    for split in ("train", "test"):
        entries = _read(classes.folder, table_name(split), Annotated[list[Any], Field(min_length=1)], problems)
        rows = list(_scene_rows(table_name(split), entries or [], classes, problems))
        labels, kept, objects = zip(*rows, strict=True) if rows else ((), (), ())
        scenes[split] = Scenes(
            split=split,
            labels=np.array(labels, dtype=np.int64),
            kept=np.array(kept, dtype=bool).reshape(len(rows), len(PART_NAMES)),
            objects=np.array(objects, dtype=np.int64),
        )
    problems.raise_any()
    return scenes


def _read(folder: Path, name: str, schema: Any, problems: Problems) -> Any:
    """The content of a table, or None after noting what is wrong with it."""
    path = folder / name
    if not path.is_file():
        problems.missing(f"{name} is missing; it is part of {URL.rsplit('/', 1)[-1]}")
        return None
    try:
        content = read_json(path, UNPACK)
        check_content(schema, content, path, UNPACK)
    except ValueError as error:
        problems.wrong(str(error))
        return None
    return content


def _scene_rows(
    name: str, entries: list[Any], classes: BirdClasses, problems: Problems
) -> Iterator[tuple[int, list[bool], int]]:
    """Class, kept parts and number of background objects of every sound entry."""
    expected = [
        [(part, *classes.variants[part][variant]) for part, variant in zip(PART_NAMES, row, strict=True)]
        for row in classes.table.tolist()
    ]
    for position, entry in enumerate(entries):
        label = entry.get("class_idx") if isinstance(entry, dict) else None
        if type(label) is not int or not 0 <= label < len(expected):
            problems.wrong(
                f"{name}, entry {position}: expected `class_idx` 0 to {len(expected) - 1}, but got {label!r}"
            )
            continue
        objects = str(entry.get("bg_objects", "")).split(",")
        count = len([text for text in objects if text])
        if count > MAX_OBJECTS:
            problems.wrong(f"{name}, entry {position}: expected at most {MAX_OBJECTS} `bg_objects`, but got {count}")
            continue
        kept = []
        for part, model, color in expected[label]:
            drawn = (entry.get(f"{part}_model"), entry.get(f"{part}_color", color) if color else None)
            kept.append(drawn[0] not in REMOVED)
            if kept[-1] and drawn != (model, color):
                problems.wrong(
                    f"{name}, entry {position}: expected the {part} of class {label}, {model} {color or ''}".rstrip()
                    + f", or {PLACEHOLDER}, but got {drawn[0]} {drawn[1] or ''}".rstrip()
                )
        yield label, kept, count
