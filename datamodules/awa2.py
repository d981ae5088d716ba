"""Animals with Attributes 2 (Xian et al. 2018): 50 animals, each described by 85 predicates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from protometry.datamodules.arguments import check_choice
from protometry.datamodules.photos.class_attributes import AttributedDataset, ClassAttributes
from protometry.datamodules.photos.data_module import PhotoDataModule
from protometry.datamodules.photos.dataset import PhotoTable
from protometry.datamodules.photos.download import Archive
from protometry.datamodules.photos.files import locate, read_text
from protometry.datamodules.photos.folders import by_folder
from protometry.datamodules.photos.problems import Problems
from protometry.datamodules.sample import nfc
from protometry.datamodules.transforms.crop_and_augment import PhotoTransform
from protometry.run_folder.settings import Effect

FOLDER = "Animals_with_Attributes2"
ARCHIVES = (Archive("https://cvml.ista.ac.at/AwA2/AwA2-data.zip", None, 13_000_000_000),)
REMEDY = (
    f"Get {ARCHIVES[0].url} (13 GB), unpack it so that `root` holds {FOLDER}/, or pass `download: true` with a "
    "`root` that is missing or empty."
)
CLASSES, PREDICATES, IMAGES = "classes.txt", "predicates.txt", "JPEGImages"
BINARY, CONTINUOUS = "predicate-matrix-binary.txt", "predicate-matrix-continuous.txt"
MARKERS = (PREDICATES, BINARY)  # CUB-200-2011 has a classes.txt too
OFFICIAL_CLASSES, OFFICIAL_IMAGES, OFFICIAL_PREDICATES = 50, 37_322, 85
# what a photo can show of an animal; the others are about its diet, its habits and its character
# fmt: off
VISIBLE = (
    "black", "white", "blue", "brown", "gray", "orange", "red", "yellow", "patches", "spots", "stripes", "furry",
    "hairless", "toughskin", "big", "small", "bulbous", "lean", "flippers", "hands", "hooves", "pads", "paws",
    "longleg", "longneck", "tail", "chewteeth", "meatteeth", "buckteeth", "strainteeth", "horns", "claws", "tusks",
    "bipedal", "quadrapedal", "arctic", "coastal", "desert", "bush", "plains", "forest", "fields", "jungle",
    "mountains", "ocean", "ground", "water", "tree", "cave",
)
# fmt: on


class AwA2Dataset(AttributedDataset):
    """The photos of AwA2 with the predicates of their animals, as an evaluation sees them.

    Args:
        root: the folder ``Animals_with_Attributes2`` or the one that holds it; only read.
        transform: what makes the model's frame; by default, photos are resized to 224 x 224 pixels.

    Raises:
        FileNotFoundError: if the folder or a table is missing.
        ValueError: if a table is malformed or two tables disagree.
    """

    def __init__(self, root: str, multi_label: bool = True, transform: PhotoTransform | None = None) -> None:
        folder = locate(root, FOLDER, MARKERS, REMEDY)
        predicates = read_predicates(folder)
        super().__init__(_read_photos(folder), transform or PhotoTransform(), predicates, multi_label)


class AwA2(PhotoDataModule):
    """Animals with Attributes 2.

    The labels are the 49 visible predicates of the animal (all predicates of a table that has none of these), and
    ``label`` is the animal. There is no official division of the photos, as AwA2 divides the animals: 70/30 with four
    folds (``cv70``; Schlinge et al. 2025). The concept tables have one row per animal: ``class_concepts_binary`` is the
    binary matrix, ``class_concepts`` the continuous one in 0..1.

    Args:
        root: the folder ``Animals_with_Attributes2`` or the one that holds it; only read.
        task: ``attributes`` (multilabel) or ``single`` (which animal it is).
        download: fetch the archive if ``root`` is missing or empty.
        photos: the other arguments of :class:`.PhotoDataModule`.

    Raises:
        ValueError: if an argument is out of range.
    """

    title = "AwA2"
    remedy = REMEDY
    archives = ARCHIVES
    official_images = OFFICIAL_IMAGES

    def __init__(
        self,
        root: str,
        task: Literal["attributes", "single"] = "attributes",
        download: Annotated[bool, Effect.NONE] = False,
        **photos: Any,
    ) -> None:
        check_choice("task", task, ("attributes", "single"))
        super().__init__(root, **photos)
        self.multi_label = task == "attributes"
        self.download = download
        self.promised_classes = len(VISIBLE) if self.multi_label else OFFICIAL_CLASSES
        self.promised_concepts = len(VISIBLE)

    def photo_dataset(self) -> AwA2Dataset:
        """Read the tables and look through the folders of the animals."""
        return AwA2Dataset(self.root, self.multi_label, self.transform())


def _read_photos(folder: Path) -> PhotoTable:
    problems = Problems(f"AwA2 in {folder}", REMEDY)
    names = _names(folder, CLASSES, problems)
    index = {name: number for number, name in enumerate(names)}
    if not (folder / IMAGES).is_dir():
        problems.missing(f"{IMAGES}/ is missing; it is part of {ARCHIVES[0].name}")
        problems.raise_any()
    placed = by_folder(folder, [IMAGES], problems)
    there = set(placed.keys)
    for name in names:
        if name not in there:
            problems.wrong(f"class {name!r} of {CLASSES} has 0 images in {IMAGES}/")
    for name in sorted(there - index.keys()):
        problems.wrong(f"class {name!r} has a folder in {IMAGES}/, but no row in {CLASSES}")
    if len(names) == OFFICIAL_CLASSES and len(placed.paths) != OFFICIAL_IMAGES:
        problems.wrong(f"{IMAGES}/: expected {OFFICIAL_IMAGES} images, but got {len(placed.paths)}")
    problems.raise_any()
    return PhotoTable(
        dataset="awa2",
        folder=folder,
        class_names=names,
        files=placed.files(folder),
        labels=np.array([index[key] for key in placed.keys], dtype=np.int64),
    )


def read_predicates(folder: Path) -> ClassAttributes:
    """Read the names of the visible predicates and both matrices.

    Raises:
        FileNotFoundError: if a table is missing.
        ValueError: if a table is malformed or does not fit the others; all findings are in one message.
    """
    problems = Problems(f"AwA2 in {folder}", REMEDY)
    shape = len(_names(folder, CLASSES, problems)), len(predicates := _names(folder, PREDICATES, problems))
    binary, continuous = (_matrix(folder, name, shape, problems) for name in (BINARY, CONTINUOUS))
    if not set(np.unique(binary)) <= {0, 1}:
        problems.wrong(f"{BINARY}: expected 0 and 1 only, but got {binary.min():g} to {binary.max():g}")
    if continuous.size and not (continuous.min() >= 0 and continuous.max() <= 100):
        problems.wrong(f"{CONTINUOUS}: expected 0 to 100, but got {continuous.min():g} to {continuous.max():g}")
    visible = [number for number, name in enumerate(predicates) if name in VISIBLE]
    if len(visible) not in (0, len(VISIBLE)) or (len(predicates) == OFFICIAL_PREDICATES and not visible):
        problems.wrong(f"{PREDICATES}: expected all {len(VISIBLE)} visible predicates, but got {len(visible)} of them")
    problems.raise_any()
    chosen = visible or list(range(len(predicates)))
    share = continuous / 100
    names = [predicates[i] for i in chosen]
    return ClassAttributes(names, binary[:, chosen] == 1, share[:, chosen], share, predicates)


def _names(folder: Path, name: str, problems: Problems) -> list[str]:
    """The names in a table of rows ``number name``, which count from 1."""
    path = folder / name
    if not path.is_file():
        problems.missing(f"{name} is missing; it is part of {ARCHIVES[0].name}")
        return []
    rows = [line.split(maxsplit=1) for line in read_text(path).splitlines() if line.strip()]
    for number, row in enumerate(rows, start=1):
        if len(row) != 2 or row[0] != str(number):
            problems.wrong(f"{name}, row {number}: expected `{number} name`, but got {' '.join(row)!r}")
            return []
    names = [nfc(row[1].strip()) for row in rows]
    if not names or len(set(names)) != len(names):
        problems.wrong(f"{name}: expected different names, but got {len(set(names))} in {len(names)} rows")
    return names


def _matrix(folder: Path, name: str, shape: tuple[int, int], problems: Problems) -> NDArray[np.float64]:
    """A matrix with a row per animal and a column per predicate."""
    path = folder / name
    if not path.is_file():
        problems.missing(f"{name} is missing; it is part of {ARCHIVES[0].name}")
        return np.zeros(shape)
    try:
        matrix = np.loadtxt(path, ndmin=2, comments=None, encoding="utf-8-sig")
    except ValueError as error:
        problems.wrong(f"{name}: expected numbers in rows of equal length, but {error}")
        return np.zeros(shape)
    if matrix.shape != shape and 0 not in shape:
        problems.wrong(
            f"{name}: expected {shape[0]} rows (as {CLASSES}) of {shape[1]} columns (as {PREDICATES}), but got "
            f"{matrix.shape[0]} of {matrix.shape[1]}; the file may be truncated"
        )
        return np.zeros(shape)
    return matrix
