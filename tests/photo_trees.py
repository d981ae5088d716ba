"""Small trees in the official layouts of data sets of photos; photo i (from 1) is filled with grey 2 i."""

from __future__ import annotations

import csv
import hashlib
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat

from protometry.datamodules.awa2 import VISIBLE

HIDDEN = ("newworld", "fast", "timid")  # predicates of AwA2 that no photo shows
CORNERS = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")


def fingerprint(folder: Path, times: bool = True) -> str:
    """Names, link targets and contents of everything below a folder, and by default when it was changed."""
    digest = hashlib.sha256()
    top = os.fsencode(folder)  # names need not be UTF-8
    for place, folders, names in os.walk(top):
        folders.sort()
        for name in sorted([*names, *folders]):
            path = os.path.join(place, name)
            digest.update(path.removeprefix(top) + (str(os.lstat(path).st_mtime_ns).encode() if times else b""))
            if os.path.islink(path):
                digest.update(os.readlink(path))
            elif os.path.isfile(path):
                digest.update(Path(os.fsdecode(path)).read_bytes())
    return digest.hexdigest()


def stamps(folder: Path) -> list[tuple[str, int]]:
    """Names of everything below a folder, and when it was changed; for folders too large for :func:`fingerprint`."""
    return [(str(path), path.stat().st_mtime_ns) for path in sorted(folder.rglob("*"))]


def edit(path: Path, change: Callable[[str], str]) -> None:
    """Change the text of a table."""
    path.write_text(change(path.read_text()))


def photo(path: Path, number: int) -> Path:
    """A 40x30 photo filled with grey 2 x number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (40, 30), (2 * number,) * 3).save(path)
    return path


def make_folders(root: Path, parts: dict[str, int] | None = None, classes: tuple[str, ...] = ("ant", "bee")) -> Path:
    """``<part>/<class>/<i>.jpg`` with so many photos per class and part; the part "" has its classes in ``root``."""
    number = 0
    for part, count in (parts or {"": 8}).items():
        for name in classes:
            for i in range(count):
                number += 1
                photo(root / part / name / f"{i}.jpg", number)
    return root


def make_flat(root: Path, per_class: int = 8, classes: tuple[str, ...] = ("ant", "bee")) -> Path:
    """Files ``<class>_<i>.JPEG``."""
    for c, name in enumerate(classes):
        for i in range(per_class):
            photo(root / f"{name}_{i}.JPEG", c * per_class + i + 1)
    return root


def write_attributes(
    path: Path, rows: dict[str, list[int]], names: tuple[str, ...] = ("small", "striped", "furry")
) -> Path:
    """A comma-separated table of classes and attributes."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["class", *names], *([name, *row] for name, row in rows.items())])
    return path


def write_table(path: Path, header: list[str], rows: list[list[object]], delimiter: str = ",") -> Path:
    """A table in UTF-8."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter).writerows([header, *rows])
    return path


def make_table(root: Path) -> Path:
    """16 photos in class folders, with a box, the point of an eye, masks and two attributes in ``photos.csv``."""
    make_folders(root)
    rows: list[list[object]] = []
    for i, name in enumerate(f"{name}/{i}.jpg" for name in ("ant", "bee") for i in range(8)):
        mask = root / "masks" / f"{i}.png"
        mask.parent.mkdir(exist_ok=True)
        Image.fromarray(np.arange(1200, dtype=np.uint8).reshape(30, 40)).save(mask)
        rows.append([name, "2 3 20 14.5", "9 8.5" if i % 3 else "", f"masks/{i}.png", i % 2, 1 + i % 4, ""])
    header = ["image", "box", "part:left eye", "mask", "attribute:eye::red", "certainty:eye::red", "attribute:furry"]
    return write_table(root / "photos.csv", header, rows)


def make_awa2(root: Path, classes: tuple[str, ...] = ("polar+bear", "bat", "cow"), per_class: int = 8) -> Path:
    """The official layout with 49 visible and 3 other predicates, the first of these before all others.

    Animal c has predicate p (from 0, in the order of the file) if (c + p) is even, with strength
    40 + 10 (c mod 3) + p / 2, and strength 5 (c mod 3) otherwise.
    """
    folder = root / "Animals_with_Attributes2"
    predicates = [HIDDEN[0], *VISIBLE, *HIDDEN[1:]]
    folder.mkdir(parents=True)
    (folder / "classes.txt").write_text("".join(f"{c + 1:6d}\t{name}\n" for c, name in enumerate(classes)))
    (folder / "predicates.txt").write_text("".join(f"{p + 1:6d}\t{name}\n" for p, name in enumerate(predicates)))
    c, p = np.indices((len(classes), len(predicates)))
    np.savetxt(folder / "predicate-matrix-binary.txt", (c + p + 1) % 2, fmt="%d")
    strength = np.where((c + p) % 2 == 0, 40 + 10 * (c % 3) + p / 2, 5 * (c % 3))
    np.savetxt(folder / "predicate-matrix-continuous.txt", strength, fmt="%7.2f")
    for c, name in enumerate(classes):
        for i in range(per_class):
            photo(folder / "JPEGImages" / name / f"{name}_{10001 + i}.jpg", c * per_class + i + 1)
    return root


def make_cars(
    root: Path, names: tuple[str, ...] = ("AM General Hummer", "Ram C/V Van"), train: int = 6, test: int = 3
) -> Path:
    """The layout of torchvision; car i of each list has class i mod K and the box of pixels 4..23 x 6..17, from 0."""
    folder = root / "stanford_cars"
    (folder / "devkit").mkdir(parents=True)
    savemat(folder / "devkit/cars_meta.mat", {"class_names": np.array([list(names)], dtype=object)})
    for part, count, path in (
        ("train", train, folder / "devkit/cars_train_annos.mat"),
        ("test", test, folder / "cars_test_annos_withlabels.mat"),
    ):
        rows = []
        for i in range(count * len(names)):
            photo(folder / f"cars_{part}" / f"{i + 1:05d}.jpg", i + 1 + (train * len(names) if part == "test" else 0))
            rows.append((5, 7, 24, 18, i % len(names) + 1, f"{i + 1:05d}.jpg"))
        save_annotations(path, rows, (*CORNERS, "class", "fname"))
    return root


def make_cars_in_one(
    root: Path, names: tuple[str, ...] = ("AM General Hummer", "Ram C/V Van"), count: int = 12
) -> Path:
    """The layout of one table; every third photo is test."""
    rows = []
    for i in range(count):
        name = photo(root / "car_ims" / f"{i + 1:06d}.jpg", i + 1).relative_to(root).as_posix()
        rows.append((name, 5, 7, 24, 18, i % len(names) + 1, int(i % 3 == 2)))
    fields = ("relative_im_path", *CORNERS, "class", "test")
    save_annotations(root / "cars_annos.mat", rows, fields, class_names=np.array([list(names)], dtype=object))
    return root


def save_annotations(path: Path, rows: list[tuple], fields: tuple[str, ...], **others: np.ndarray) -> None:
    """A struct array as the devkit has it."""
    table = np.array([rows], dtype=[(name, object) for name in fields])
    savemat(path, {"annotations": table, **others})


def noise_picture(path: Path, size: tuple[int, int] = (20, 10), seed: int = 0, mode: str = "RGB") -> Path:
    """A picture of random pixels; ``size`` is (width, height)."""
    shape = (size[1], size[0], 3) if mode == "RGB" else (size[1], size[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)).save(path)
    return path


def claimed_png(path: Path, width: int, height: int = 1) -> Path:
    """A PNG file of a few bytes whose header claims a size."""
    chunks = ((b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)), (b"IDAT", zlib.compress(b"\0" * 9)))
    packed = [
        struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in (*chunks, (b"IEND", b""))
    ]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(packed))
    return path


def turned(path: Path, pixels: np.ndarray) -> Path:
    """A photo whose EXIF tag turns it by a quarter."""
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).save(path, exif=exif)
    return path


def cut(path: Path, share: float = 0.5) -> Path:
    """Keep the first part of a file."""
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    return path


def truncated(path: Path) -> Path:
    """The first half of a picture of random pixels."""
    return cut(noise_picture(path, (200, 200)))
