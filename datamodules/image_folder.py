"""Photos in ImageNet-style folders: own data, ImageNet and its subsets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import numpy as np
from lightning.pytorch.utilities import rank_zero_info
from numpy.typing import NDArray

from protometry.command_line.messages import did_you_mean
from protometry.command_line.user_path import user_path
from protometry.datamodules import splits
from protometry.datamodules.arguments import check_choice
from protometry.datamodules.photos.class_attributes import AttributedDataset, read_attribute_table
from protometry.datamodules.photos.data_module import PhotoDataModule
from protometry.datamodules.photos.dataset import PhotoTable
from protometry.datamodules.photos.files import folders_below, read_text
from protometry.datamodules.photos.folders import (
    EXTENSIONS,
    PARTS,
    by_folder,
    by_prefix,
    misnamed_split_folders,
    split_folders,
    visible_folders,
)
from protometry.datamodules.photos.problems import Problems, first_few
from protometry.datamodules.sample import nfc
from protometry.datamodules.transforms.photo import PhotoTransform

TITLE = "the image folder"
REMEDY = "Fix the folder or list what is not wanted in `exclude`."
Layout = Literal["folders", "flat"]
FolderScheme = Literal["auto", "cv70", "official", "test"]
WNID = re.compile(r"n\d{8}")


class ImageFolderDataset(AttributedDataset):
    """The photos below a folder, as an evaluation sees them; see :class:`ImageFolder` for layouts and classes.

    Args:
        parts: whether ``train/``, ``val/`` and ``test/`` in ``root`` are the official parts; a root that is one of them
            is then an error.
        transform: what makes the model's frame; by default, photos are resized to 224 x 224 pixels.

    Raises:
        FileNotFoundError: if a folder or file is not found.
        ValueError: if photos and classes do not fit.
    """

    def __init__(
        self,
        root: str,
        layout: Layout = "folders",
        class_file: str | None = None,
        attribute_table: str | None = None,
        parts: bool = True,
        transform: PhotoTransform | None = None,
    ) -> None:
        check_choice("layout", layout, ("folders", "flat"))
        folder = _find(root, layout, parts)
        self.parts = split_folders(folder) if layout == "folders" else []
        keys, names = _classes(folder, layout, class_file)
        attributes = None if attribute_table is None else read_attribute_table(user_path(attribute_table), keys)
        table = _read(folder, self.parts, layout, (keys, names), class_file or f"{folder}/train")
        super().__init__(table, transform or PhotoTransform(), attributes, attribute_table is not None)


class ImageFolder(PhotoDataModule):
    """Photos whose class is the name of their folder, or the beginning of their name.

    A sample id is the path below ``root``. Files that are not images (by extension), hidden files and folders next to
    ``train/``, ``val/`` and ``test/`` are ignored.

    Args:
        root: the folder that holds ``train/`` with ``val/`` or ``test/``, or the class folders, or the files; only
            read.
        layout: ``folders``: ``{train,val,test}/<class>/**`` or ``<class>/**``; ``flat``: files ``<class>_<rest>``.
        scheme: ``official`` keeps the folders (without ``test/``, ``val/`` is the test part; without ``val/``,
            validation is held out of ``train/``; with ``fold: null``, ``val/`` next to ``test/`` is trained on),
            ``cv70`` divides all photos 70/30 with four folds, ``test`` keeps all for test, ``auto`` is ``official``
            where there are such folders and else ``cv70``.
        class_file: fixes the order of classes, for a head that has learnt them: a class per line, as its name alone or
            as ``wnid name``; without it they are sorted.
        attribute_table: makes the attributes of a class the labels, see
            :func:`protometry.datamodules.photos.class_attributes.read_attribute_table`.
        photos: the other arguments of :class:`.PhotoDataModule`.

    Raises:
        ValueError: if an argument is out of range.
    """

    title = TITLE
    remedy = REMEDY

    def __init__(
        self,
        root: str,
        layout: Layout = "folders",
        scheme: FolderScheme = "auto",
        class_file: str | None = None,
        attribute_table: str | None = None,
        **photos: Any,
    ) -> None:
        check_choice("layout", layout, ("folders", "flat"))
        check_choice("scheme", scheme, ("auto", "cv70", "official", "test"))
        super().__init__(root, **photos)
        self.layout: Layout = layout
        self.scheme = scheme
        self.fold = None if scheme == "test" else self.fold  # nothing to hold out
        self.class_file = class_file
        self.attribute_table = attribute_table

    def photo_dataset(self) -> ImageFolderDataset:
        """Look through the folders."""
        parts, transform = self.scheme == "auto", self.transform()
        return ImageFolderDataset(self.root, self.layout, self.class_file, self.attribute_table, parts, transform)

    def make_splits(self, population: splits.Population, rows: NDArray[np.int64]) -> splits.Splits:
        """Divide the photos by ``scheme``; ``val/`` is the validation part where there is ``test/`` too."""
        photos = self.photos
        assert isinstance(photos, ImageFolderDataset)
        if self.scheme == "auto":
            self.scheme = "official" if photos.parts else "cv70"
            rank_zero_info(f"{self.title} {photos.table.folder}: {_division(photos.parts)} (scheme {self.scheme}).")
        if self.scheme == "test":
            return splits.given(population, self.scheme, splits.SEED, population.ids, [])
        if self.scheme == "official" and len(photos.parts) == len(PARTS):
            test, val = ([name for name in population.ids if name.startswith(part)] for part in ("test/", "val/"))
            return splits.given(population, self.scheme, splits.SEED, test, [val])
        return super().make_splits(population, rows)


def _division(parts: list[str]) -> str:
    """How photos are divided, by the parts that have a folder."""
    if not parts:
        return "30 % of the photos of each class are drawn for the test, and of the others a fold for validation"
    if len(parts) == len(PARTS):
        return "the folders say which photos are for training, validation and test"
    return f"{parts[-1]}/ is the test part, and of train/ a fold is drawn for validation"


def _read(
    folder: Path, parts: list[str], layout: Layout, classes: tuple[list[str], list[str]], source: str
) -> PhotoTable:
    """The photos below a folder; ``source`` is what names the classes."""
    keys, names = classes
    problems = Problems(f"{TITLE} {folder}", REMEDY)
    placed = by_folder(folder, parts, problems) if layout == "folders" else by_prefix(folder, problems)
    for part in parts:
        if not visible_folders(folder / part):
            problems.wrong(f"{part}/ holds no class folders; fill it or remove it")
    index = {key: number for number, key in enumerate(keys)}
    unknown = {key: path for path, key in zip(placed.paths, placed.keys, strict=True) if key not in index}
    for key, path in unknown.items():
        problems.wrong(f"class {key!r} of {path} is not in {source}.{did_you_mean(key, keys)}")
    problems.raise_any()
    held_out = "test/" if "test" in parts else "val/"
    return PhotoTable(
        dataset="image_folder",
        folder=folder,
        class_names=names,
        files=placed.files(folder),
        labels=np.array([index[key] for key in placed.keys], dtype=np.int64),
        is_test=np.array([path.startswith(held_out) for path in placed.paths]) if parts else None,
    )


def _find(root: str, layout: Layout, parts: bool) -> Path:
    """``root``, if photos can be in it."""
    folder = user_path(root)
    if not folder.is_dir():
        raise FileNotFoundError(f"Expected argument `root` to be a folder, but there is none at {folder}.")
    inside = visible_folders(folder)
    holds = first_few(inside) if inside else "no folders"
    if layout == "flat":
        if not _holds_images(folder):
            raise FileNotFoundError(
                f"Expected argument `root` to hold images for `layout: flat`, but {folder} holds "
                f"{holds}.{_use([place for place in folders_below(folder) if _holds_images(place)])}"
            )
        return folder
    if alike := misnamed_split_folders(folder):
        raise FileNotFoundError(
            f"Expected argument `root` to hold train/ with val/ or test/, or class folders, but {folder} holds "
            f"{first_few(alike)}. Name the parts `train`, `val` and `test`, or give the folder of one of them."
        )
    above = folder.resolve().parent
    if parts and folder.resolve().name in split_folders(above):
        raise FileNotFoundError(
            f"Expected argument `root` to hold train/ with val/ or test/, but {folder} is one of these."
            f"{_use([above])} To divide its photos alone, use `scheme: cv70`."
        )
    deeper = [
        name for name in inside if split_folders(folder / name) or (inside == [name] and visible_folders(folder / name))
    ]
    if deeper or len(inside) < 2:
        below = folders_below(folder)
        hint = (
            [place for place in below if split_folders(place)]
            or [place for place in below if len(visible_folders(place)) > 1]
            or ([above.parent] if above.name in split_folders(above.parent) else [above])
        )
        raise FileNotFoundError(
            f"Expected argument `root` to hold class folders, but {folder} holds {holds}.{_use(hint)}"
        )
    return folder


def _classes(folder: Path, layout: Layout, class_file: str | None) -> tuple[list[str], list[str]]:
    """Keys (names of folders, or beginnings of file names) and names of the classes, in order."""
    if class_file is not None:
        return read_classes(user_path(class_file))
    if layout == "flat":
        placed = by_prefix(folder, Problems(TITLE, REMEDY))
        keys = sorted(set(placed.keys))
    else:
        keys = [nfc(name) for name in visible_folders(folder / "train" if split_folders(folder) else folder)]
    return keys, keys


def read_classes(path: Path) -> tuple[list[str], list[str]]:
    """The keys (wnids, else names) and the names in a file with one class per line, as its name or as ``wnid name``.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is empty or a key repeats.
    """
    if not path.is_file():
        raise FileNotFoundError(f"Expected argument `class_file` to be a file, but there is none at {path}.")
    lines = [nfc(line.strip()) for line in read_text(path).splitlines() if line.strip()]
    pairs = [line.split(maxsplit=1) if WNID.fullmatch(line.split()[0]) else [line] for line in lines]
    keys = [pair[0] for pair in pairs]
    if len(set(keys)) != len(keys) or not keys:
        twice = next((key for key in keys if keys.count(key) > 1), None)
        got = f"{twice!r} several times" if keys else "none"
        raise ValueError(f"Expected {path} to name different classes, one per line, but got {got}.")
    return keys, [pair[-1] for pair in pairs]


def _holds_images(folder: Path) -> bool:
    return any(path.suffix.lower() in EXTENSIONS for path in folder.iterdir())


def _use(places: list[Path]) -> str:
    return f" Use `root: {places[0]}`." if places else ""
