"""What lies in a folder of photos of one's own: their classes by folder or table, and what a table says of each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from protometry.datamodules.image_folder.annotations import (
    Annotations,
    compare_with_photos,
    find_table,
    read_annotations,
)
from protometry.datamodules.photos.dataset import PhotoTable
from protometry.datamodules.photos.files import SAVE_AGAIN, folders_below, on_disk, read_text
from protometry.datamodules.photos.folders import (
    EXTENSIONS,
    PARTS,
    Placed,
    by_folder,
    by_prefix,
    images_below,
    misnamed_split_folders,
    split_folders,
    visible_folders,
)
from protometry.datamodules.photos.problems import Problems, first_few
from protometry.datamodules.photos.verify import ImageFile
from protometry.datamodules.sample import nfc
from protometry.run_folder.command_line.messages import did_you_mean
from protometry.run_folder.command_line.user_path import user_path

TITLE = "the image folder"
REMEDY = "Fix the folder or list what is not wanted in `exclude`."
Layout = Literal["folders", "flat"]
WNID = re.compile(r"n\d{8}")
NO_CLASS = "none of them"  # of a photo without labels, where others have several


@dataclass(frozen=True)
class OwnPhotos:
    """Photos of one's own.

    Args:
        table: what is known of them.
        keys: of the classes, in order, as folders and tables name them.
        parts: those of ``train``, ``val`` and ``test`` that there are; none if nothing says how photos are divided.
        part_of: the part of each photo, where there are any.
        found: what a table says of each photo.
    """

    table: PhotoTable
    keys: list[str]
    parts: list[str]
    part_of: list[str] = field(default_factory=list)
    found: Annotations | None = None


def own_photos(
    root: str, layout: Layout, class_file: str | None = None, official: bool = True, table: str | None = None
) -> OwnPhotos:
    """Look through a folder, and read the table.

    Args:
        root: the folder.
        layout: see :class:`.ImageFolder`.
        class_file: fixes the order of classes.
        official: whether folders ``train/``, ``val/`` and ``test/`` are parts; a root that is one is then an error.
        table: file with a row per photo.

    Raises:
        FileNotFoundError: if a folder or file is not found.
        ValueError: if photos, classes and table do not fit.
    """
    if table is not None and user_path(root).is_dir():
        return _with_table(user_path(root), layout, class_file, official, table)
    folder = _find(root, layout, official)
    parts = split_folders(folder) if layout == "folders" else []
    keys, names = _classes(folder, layout, class_file)
    photos = _read(folder, parts, layout, (keys, names), class_file or f"{folder}/train")
    part_of = [file.sample_id.split("/")[0] for file in photos.files] if parts else []
    return OwnPhotos(photos, keys, parts, part_of)


def _with_table(folder: Path, layout: Layout, class_file: str | None, official: bool, table: str) -> OwnPhotos:
    path = find_table(table, folder)
    problems = Problems(f"{path} and the photos in {folder}", "Fix the table or the folder.")
    found = read_annotations(path, folder, problems)
    folders = split_folders(folder) if layout == "folders" else []
    placed = _placed(folder, folders, layout, official, found, problems)
    compare_with_photos(found, path, folder, placed.paths, problems)
    named = set(found.parts or ([name.split("/")[0] for name in placed.paths] if folders else []))
    parts = [part for part in PARTS if part in named]
    if official and named and named <= set(PARTS) and ("train" not in parts or len(parts) == 1):
        problems.wrong(f"{path.name}, column `split`: expected train with val or test, but got only {', '.join(parts)}")
    keys, names = _classes_of_table(path, found, placed, class_file, problems)
    problems.photos = partial(_with_known_marks, folder, placed.paths, found)
    problems.raise_any()
    found = found.in_order(placed.paths)
    part_of = found.parts or ([name.split("/")[0] for name in placed.paths] if folders else [])
    labels = placed.keys or _first_labels(found)
    if found.several is not None:
        title = dict(zip(keys, names, strict=True))
        found = replace(found, label_names=names, several=[[title[name] for name in row] for row in found.several])
        keys = names = sorted(set(labels))
    return OwnPhotos(
        _photo_table(folder, placed.paths, labels, (keys, names), part_of, found), keys, parts, part_of, found
    )


def _classes_of_table(
    path: Path, found: Annotations, placed: Placed, class_file: str | None, problems: Problems
) -> tuple[list[str], list[str]]:
    """Keys and names of the classes of a table, or of the folders that photos are placed in."""
    several = [placed.keys or _first_labels(found)] if found.several is None else found.several
    used = sorted({name for names in several for name in names if name})
    for name in (name for name in used if name.endswith(".0") and name.removesuffix(".0") in used):
        problems.wrong(f"{path.name}: {name.removesuffix('.0')!r} and {name!r} are one class; write it in one way")
    keys, names = (used, used) if class_file is None else read_classes(user_path(class_file))
    for name in sorted(set(used) - set(keys)):
        problems.wrong(f"class {name!r} of {path.name} is not in {class_file}.{did_you_mean(name, keys)}")
    return keys, names


def marked_files(table: PhotoTable, found: Annotations, rows: Iterable[int]) -> list[ImageFile]:
    """Photos with their boxes and visible points, which must not lie outside."""
    marked = []
    for row in rows:
        place = found.places[row]
        points = [f"{place}: the visible point of part {name!r}" for name in found.part_names]
        marked.append(replace(table.files[row], marks=table.marks(row, f"{place}: the box", points)))
    return marked


def _with_known_marks(folder: Path, paths: list[str], found: Annotations) -> list[ImageFile]:
    """Photos as far as a faulty table says something of them."""
    named = set(found.paths)
    known = [path for path in paths if nfc(path) in named]
    own = found.in_order(known)
    table = _photo_table(folder, known, [""] * len(known), ([""], [""]), [], own)
    others = [ImageFile(path, folder / path) for path in paths if nfc(path) not in named]
    return marked_files(table, own, range(len(known))) + others


def _placed(
    folder: Path, parts: list[str], layout: Layout, official: bool, found: Annotations, problems: Problems
) -> Placed:
    """The photos below a folder, with their classes unless the table says them; masks are no photos."""
    masks = set(found.masks or ())
    if found.labels is None and found.several is None:
        _find(str(folder), layout, official and found.parts is None)
        return by_folder(folder, parts, problems, masks) if layout == "folders" else by_prefix(folder, problems, masks)
    images = [name for name in images_below(folder, problems) if nfc(name) not in masks]
    if parts and found.parts is None:
        images = [name for name in images if name.split("/")[0] in parts]
    return Placed(images, [])


def _first_labels(found: Annotations) -> list[str]:
    """The class by which each photo is divided: its own, or the first of several."""
    if found.several is None:
        return found.labels or []
    first = [names[0] if names else NO_CLASS for names in found.several]
    return [own or other for own, other in zip(found.labels or first, first, strict=True)]


def _photo_table(
    folder: Path,
    paths: list[str],
    labels: list[str],
    classes: tuple[list[str], list[str]],
    part_of: list[str],
    found: Annotations | None,
) -> PhotoTable:
    """The table of photos, given the classes' keys and names."""
    index = {key: number for number, key in enumerate(classes[0])}
    held_out = "test" if "test" in part_of else "val"
    files = [ImageFile(path, folder / path) for path in paths]
    marked = found or Annotations([], [])
    if marked.masks is not None and "object_mask" not in marked.missing:
        where = ("", "the table names it")
        pairs = zip(files, marked.masks, strict=True)
        files = [replace(file, mask=on_disk(folder, mask), sources=where) if mask else file for file, mask in pairs]
    groups = marked.groups
    return PhotoTable(
        dataset="image_folder",
        folder=folder,
        class_names=classes[1],
        files=files,
        labels=np.array([index[key] for key in labels], dtype=np.int64),
        is_test=np.array([part == held_out for part in part_of]) if part_of else None,
        boxes=marked.boxes,
        points=marked.points,
        visible=marked.visible,
        outlines=marked.outlines,
        kept_together=None if groups is None else [name or path for name, path in zip(groups, paths, strict=True)],
    )


def _read(
    folder: Path, parts: list[str], layout: Layout, classes: tuple[list[str], list[str]], source: str
) -> PhotoTable:
    """The photos below a folder; ``source`` is what names the classes."""
    keys, _ = classes
    problems = Problems(f"{TITLE} {folder}", REMEDY)
    placed = by_folder(folder, parts, problems) if layout == "folders" else by_prefix(folder, problems)
    problems.photos = partial(placed.files, folder)
    for part in parts:
        if not visible_folders(folder / part):
            problems.wrong(f"{part}/ holds no class folders; fill it or remove it")
    known = set(keys)
    unknown = {key: path for path, key in zip(placed.paths, placed.keys, strict=True) if key not in known}
    for key, path in unknown.items():
        problems.wrong(f"class {key!r} of {path} is not in {source}.{did_you_mean(key, keys)}")
    problems.raise_any()
    part_of = [path.split("/")[0] for path in placed.paths] if parts else []
    return _photo_table(folder, placed.paths, placed.keys, classes, part_of, None)


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
            or ([above.parent] if above.name in split_folders(above.parent) else [])
            or ([above] if _holds_images(folder) else [])
        )
        raise FileNotFoundError(
            f"Expected argument `root` to hold class folders, at least 2, but {folder} holds {holds}.{_use(hint)}"
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
    lines = [nfc(line.strip()) for line in read_text(path, SAVE_AGAIN).splitlines() if line.strip()]
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
