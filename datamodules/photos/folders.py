"""Folders of images, and the class each image belongs to by its place."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from lightning.pytorch.utilities import rank_zero_warn

from protometry.datamodules.photos.files import HEIC, HEIC_REMEDY, HEIF
from protometry.datamodules.photos.problems import Problems, first_few
from protometry.datamodules.photos.verify import ImageFile
from protometry.datamodules.sample import nfc
from protometry.run_folder.command_line.messages import counted

EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", *(HEIC if HEIF else ()))
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
PARTS = ("train", "val", "test")
LIKE_PARTS = {*PARTS, "training", "valid", "validation", "testing"}


@dataclass(frozen=True)
class Placed:
    """Images that belong to a class by their place.

    Args:
        paths: relative POSIX paths as the disk has them, sorted.
        keys: the class of each, in the form :func:`.nfc`.
    """

    paths: list[str]
    keys: list[str]

    def files(self, folder: Path) -> list[ImageFile]:
        """The images of a folder by their ids, which are their paths."""
        return [ImageFile(path, folder / path) for path in self.paths]


def is_utf8(name: str) -> bool:
    r"""Whether the bytes of a name are UTF-8.

    Example:
        >>> is_utf8("鸟"), is_utf8("a\udcff")
        (True, False)
    """
    return name.isprintable() or name.encode(errors="replace").decode() == name


def note_names_not_utf8(names: Sequence[str], problems: Problems) -> None:
    """Note the names whose bytes are no UTF-8 or control a terminal: they could not be printed, written or hashed."""
    for name in names:
        if not is_utf8(name):
            problems.wrong(f"the name of {name!r} is not UTF-8; rename the file")
        elif CONTROL.search(name):
            problems.wrong(f"the name of {name!r} has a line break or another control character; rename the file")


def note_equal_names(place: Path, names: Iterable[str], problems: Problems) -> None:
    """Note the names in a folder that only differ in how their letters are encoded, see :func:`.nfc`."""
    first: dict[str, str] = {}
    for name in sorted(names):
        if (known := first.setdefault(nfc(name), name)) != name:
            problems.wrong(f"{place} holds {nfc(name)!r} twice, as {known!a} and as {name!a}; keep one of them")


def images_below(folder: Path, problems: Problems) -> list[str]:
    """Sorted relative POSIX paths of all images in a folder and its folders, links included, hidden ones ignored.

    A link to a folder above it is left out with a warning: it would show the same images again, without end. So are
    photos in HEIC where the package that reads them is not installed.

    Raises:
        OSError: if a folder cannot be read.
    """
    images: list[str] = []
    unread: list[str] = []
    for place, folders, names in os.walk(folder, onerror=_stop, followlinks=True):
        visible = [name for name in folders if not name.startswith(".")]
        folders[:] = [name for name in visible if not _leads_up(Path(place, name))]
        for name in sorted(set(visible) - set(folders)):
            rank_zero_warn(f"{Path(place, name)} links to a folder above it and is left out.")
        above = Path(place).relative_to(folder).as_posix()
        prefix = "" if above == "." else f"{above}/"
        inside = [name for name in names if name.lower().endswith(EXTENSIONS) and not name.startswith(".")]
        note_equal_names(Path(place), [*folders, *inside], problems)
        images += [prefix + name for name in inside]
        unread += [prefix + name for name in names if HEIF is None and name.lower().endswith(HEIC) and name[0] != "."]
    if unread:
        said = f"{counted(len(unread), 'photo')} in HEIC {'is' if len(unread) == 1 else 'are'} not read"
        rank_zero_warn(f"{folder}: {said}: {first_few(sorted(unread))}. {HEIC_REMEDY}")
    note_names_not_utf8(images, problems)
    return sorted(images, key=nfc)


def visible_folders(folder: Path) -> list[str]:
    """Sorted names of the folders in ``folder`` that are not hidden and link to none above; none if it is no folder."""
    if not folder.is_dir():
        return []
    inside = (path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    return sorted((path.name for path in inside if not _leads_up(path)), key=nfc)


def split_folders(folder: Path) -> list[str]:
    """Which of ``train``, ``val`` and ``test`` lie in ``folder``; none unless ``train`` and another one do."""
    there = [part for part in PARTS if (folder / part).is_dir()]
    return there if "train" in there and len(there) > 1 else []


def misnamed_split_folders(folder: Path) -> list[str]:
    """Folders in ``folder`` that look like parts of a split, in any case, if they are not ``train`` with others.

    One such name among others may be a class, such as the vehicle.
    """
    inside = visible_folders(folder)
    alike = [name for name in inside if name.lower() in LIKE_PARTS]
    several = len(alike) > 1 or (len(alike) == len(inside) and alike != ["train"])
    return alike if several and not ("train" in alike and set(alike) <= set(PARTS)) else []


def by_folder(folder: Path, parts: Sequence[str], problems: Problems, masks: Collection[str] = ()) -> Placed:
    """Images, without ``masks``, by the name of their class folder, in ``parts`` of the folder if there are any."""
    names = [(part, name) for part in parts or [""] for name in visible_folders(folder / part)]
    places = {f"{part}/{name}" if part else name: nfc(name) for part, name in names}
    depth = 1 + bool(parts)
    paths, keys, seen = [], [], set()
    for path in images_below(folder, problems):
        above = path.split("/")[:-1]
        if parts and above[:1] and above[0] not in parts:
            continue
        if nfc(path) in masks:
            seen.add("/".join(above[:depth]))
            continue
        if len(above) < depth:
            if above or not parts:
                problems.wrong(f"{path} lies in no class folder")
            continue
        place = "/".join(above[:depth])
        seen.add(place)
        paths.append(path)
        keys.append(places[place])
    if len(set(keys)) == 1 and all(path.count("/") > depth for path in paths):
        wrapper, inner = paths[0].split("/")[:depth], paths[0].split("/")[depth]
        remedy = f"move it up, into {wrapper[0]}/" if parts else f"use `root: {folder / wrapper[0]}`"
        problems.wrong(f"all images lie one folder too deep, as in {'/'.join([*wrapper, inner])}/; {remedy}")
    for place in sorted(places.keys() - seen):
        problems.wrong(f"class {places[place]!r} has 0 images in {place}/")
    return Placed(paths, keys)


def by_prefix(folder: Path, problems: Problems, masks: Collection[str] = ()) -> Placed:
    """Images directly in ``folder``, without ``masks``, by the part of their names before the first ``_``."""
    paths, keys = [], []
    for path in images_below(folder, problems):
        name, underscore, _ = path.partition("_")
        if "/" in path or nfc(path) in masks:
            continue
        if not underscore or not name:
            problems.wrong(f"{path} does not begin with its class and `_`")
            continue
        paths.append(path)
        keys.append(nfc(name))
    return Placed(paths, keys)


def _leads_up(link: Path) -> bool:
    """Whether this is a link that leads to a folder above it, by its own path or by links on the way to it."""
    if not link.is_symlink():
        return False
    target = link.resolve()
    return link.parent.resolve().is_relative_to(target) or any(above.resolve() == target for above in link.parents)


def _stop(error: OSError) -> NoReturn:
    raise error
