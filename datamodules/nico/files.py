"""The folders of NICO, read as they are, and the colours of every photo, computed once.

Layout: ``<class>/<context>/<image>``, names may contain spaces. What is not a picture stays where it is and is listed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

import torch
from lightning.pytorch.utilities import rank_zero_warn

from protometry.datamodules.dataset import Mapped
from protometry.datamodules.nico.hsv_rule import Group, hsv_counts, hsv_group
from protometry.datamodules.photos.cache import cache_folder, recall, remember, stamp
from protometry.datamodules.photos.files import decode_image, folders_below, open_image
from protometry.datamodules.photos.folders import note_equal_names, note_names_not_utf8, visible_folders
from protometry.datamodules.photos.problems import Problems, first_few
from protometry.datamodules.sample import nfc
from protometry.datamodules.workers import WorkerLoader
from protometry.run_folder.command_line.progress import track
from protometry.run_folder.command_line.user_path import user_path

EXTENSIONS = (".jpg", ".jpeg", ".png")
REMEDY = (
    "Get NICO by hand from its authors (He et al. 2021, nico.thumedialab.com), unpack it, and pass the folder "
    "that holds <class>/<context>/<image>, such as Animal, as `root`."
)
PUBLISHED_MODES = ("RGB", "L", "RGBA")
LOOK_VERSION = "nico 2"  # part of the cache key: change it whenever `_look` changes


@dataclass(frozen=True)
class Look:
    """What was read from one photo.

    Args:
        group: of the HSV rule, None if the photo does not decode.
        published: whether the published pipeline keeps files of this kind (it deletes the others).
    """

    group: Group | None
    published: bool
    words: str = ""


def find_folder(root: str) -> Path:
    """The folder that holds ``<class>/<context>/<image>``: ``root``, or its only subfolder that does.

    Raises:
        FileNotFoundError: saying what lies there instead.
        ValueError: if several subfolders do, such as Animal and Vehicle.
    """
    top = user_path(root)
    if not top.is_dir():
        raise FileNotFoundError(f"Expected argument `root` to be a folder, but there is none at {top}. {REMEDY}")
    if _photos_at(top, 2):
        return top
    candidates = [folder for folder in _folders(top) if _photos_at(folder, 2)]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        names = ", ".join(folder.name for folder in candidates)
        raise ValueError(f"Expected argument `root` to be one set of classes, but {top} holds {names}. Choose one.")
    deeper = [place for place in folders_below(top) if _photos_at(place, 2)]
    above = zip((1, 0), top.resolve().parents, strict=False)  # if `root` is a class or a context
    near = [*deeper, *(place for depth, place in above if _photos_at(top, depth) and _photos_at(place, 2))]
    holds = first_few(sorted(path.name for path in top.iterdir()))
    advice = f"Use `root: {near[0]}`." if near else REMEDY
    raise FileNotFoundError(
        f"Expected argument `root` to hold <class>/<context>/<image>, but {top} holds {holds}. {advice}"
    )


def read_classes(root: str) -> list[str]:
    """The names of the class folders in alphabetic order.

    Raises:
        FileNotFoundError: if the folder is not found.
    """
    return [nfc(folder.name) for folder in _folders(find_folder(root))]


def read_photos(folder: Path) -> list[str]:
    """Paths of all photos below ``folder``, sorted, with ``/``; other files, unless hidden, are warned of.

    Raises:
        ValueError: if a class has no photo, or a name is not UTF-8; all findings are in one message.
    """
    problems = Problems(f"NICO in {folder}", "Add photos, or move the folder away.")
    photos: list[str] = []
    others: list[str] = []
    for kind in _folders(folder):
        before = len(photos)
        for path in _files(kind):
            name = path.relative_to(folder).as_posix()
            (photos if _is_photo(path) and path.parent != kind else others).append(name)
        if len(photos) == before:
            problems.wrong(f"class {kind.name!r} has 0 photos in its contexts")
    note_names_not_utf8(photos, problems)
    paths = [PurePosixPath(name) for name in photos]
    note_equal_names(folder, {str(place) for path in paths for place in (path, *path.parents)}, problems)
    problems.raise_any()
    warn_left_alone(folder, sorted(others), "are not jpg, jpeg or png in a context folder")
    return sorted(photos, key=nfc)


def look_at_photos(folder: Path, names: Sequence[str], num_workers: int) -> list[Look]:
    """Decode every photo and apply the HSV rule, once for these files as they are, see :func:`.stamp`.

    It takes about 2 ms per photo and core.
    """
    digest = hashlib.sha256(LOOK_VERSION.encode())
    for name in names:
        digest.update(repr(stamp(folder / name)).encode())
    remembered = cache_folder() / "nico" / f"{digest.hexdigest()}.json"
    if content := recall(remembered):
        return [Look(*row) for row in json.loads(content)]
    own = torch.Generator()  # else the loader would draw from the generator that then makes the weights of a model
    photos = Mapped(partial(_look, folder), names)
    loader = WorkerLoader(photos, batch_size=None, num_workers=num_workers, generator=own)
    looks: list[Look] = list(track(loader, "looking at the colours of photos", total=len(names)))
    remember(remembered, json.dumps([(look.group, look.published, look.words) for look in looks]).encode())
    return looks


def warn_left_alone(folder: Path, names: Sequence[str], why: str) -> None:
    """Say how many files are not used, and the first of them."""
    if names:
        rank_zero_warn(f"NICO in {folder}: {len(names)} files {why} and are left alone: {first_few(names)}")


def _look(folder: Path, name: str) -> Look:
    path = folder / name
    try:
        image = decode_image(path, upright=True)
    except ValueError as error:
        return Look(None, False, str(error.__cause__ or error))
    with open_image(path) as photo:
        published = photo.format == "PNG" or photo.mode in PUBLISHED_MODES
    return Look(hsv_group(hsv_counts(image)), published and path.suffix in EXTENSIONS)


def _folders(top: Path) -> list[Path]:
    """Folders that are not hidden, by name (paths sort by the rules of the platform)."""
    return [top / name for name in visible_folders(top)]


def _files(kind: Path) -> Iterator[Path]:
    """Files of a class, directly in its folder and in its contexts."""
    yield from (path for path in kind.iterdir() if not path.is_dir() and not path.name.startswith("."))
    for context in _folders(kind):
        yield from (path for path in context.iterdir() if not path.name.startswith("."))


def _is_photo(path: Path) -> bool:
    return path.suffix.lower() in EXTENSIONS and path.is_file()


def _photos_at(top: Path, depth: int) -> bool:
    """Whether photos lie ``depth`` folders below ``top``."""
    if depth:
        return any(_photos_at(folder, depth - 1) for folder in _folders(top))
    return any(_is_photo(path) for path in top.iterdir())
