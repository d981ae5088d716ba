"""Leakage between splits: photos that are equal or in two parts; and class names easily taken for one another."""

from __future__ import annotations

import hashlib
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

MIDDLE = 2**16  # bytes
SIDE = (
    8  # pixels of a miniature; those of two photos of CUB-200-2011 differ by 7 and more, those of copies by 5 and less
)
NEAR = 6.0  # of 255, above the largest difference between two colours of copies
PLAIN = 8.0  # standard deviation of colours
NEIGHBOURS = 4  # of a photo that are looked for, itself included


def equal_photos(photos: Sequence[tuple[str, str, bytes]]) -> list[list[str]]:
    """Lists of the ids of photos that show the same: copies, whatever they are called, also saved again or resized.

    Args:
        photos: id of each, the hash of its pixels, and :func:`miniature`.

    Example:
        >>> equal_photos([("a.png", "x", b""), ("b.png", "y", b""), ("c.bmp", "x", b"")])
        [['a.png', 'c.bmp']]
    """
    groups: dict[tuple[str, bytes], list[str]] = defaultdict(list)
    for name, pixels, small in photos:
        groups[pixels, small].append(name)
    known = np.array([row for row, (_, small) in enumerate(groups) if small], dtype=np.int64)
    first = np.arange(len(groups))  # of those that show the same
    if len(known) > 1:
        points = np.array([list(small) for _, small in groups if small], dtype=np.float32)
        many = min(NEIGHBOURS, len(known))
        distances, nearest = cKDTree(points).query(points, k=many, p=np.inf, distance_upper_bound=NEAR)
        rows, ranks = np.nonzero(np.isfinite(distances))
        near = coo_array((np.ones(len(rows)), (rows, nearest[rows, ranks])), shape=(len(known), len(known)))
        _, component = connected_components(near, directed=False)
        first[known] = known[np.unique(component, return_index=True)[1][component]]
    merged: dict[int, list[str]] = defaultdict(list)
    for row, names in zip(first.tolist(), groups.values(), strict=True):
        merged[row] += names
    return [names for names in merged.values() if len(names) > 1]


def miniature(image: NDArray[np.uint8]) -> bytes:
    """An image ``(H, W, 3)`` in 8 x 8 pixels; nothing where it is hardly larger, or too plain to be recognised."""
    small = cv2.resize(image, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
    known = min(image.shape[:2]) >= 2 * SIDE and small.std() >= PLAIN
    return small.tobytes() if known else b""


def repeated(equal: Sequence[Sequence[str]], *kinds: Mapping[str, str]) -> list[str]:
    """Which of :func:`equal_photos` are of the same part and class as the first, in words.

    Example:
        >>> repeated([["a", "b", "c"]], {"a": "train", "b": "train", "c": "test"})
        ['b is a']
    """
    pairs = [(name, names[0]) for names in equal for name in names[1:]]
    return [f"{name} is {first}" for name, first in pairs if all(kind[name] == kind[first] for kind in kinds)]


def middle_hash(path: Path) -> str:
    """SHA-256 of the middle of a file, of up to 64 KiB."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - MIDDLE) // 2)
        return hashlib.sha256(file.read(MIDDLE)).hexdigest()


def differing(equal: Sequence[Sequence[str]], kind: Mapping[str, str]) -> list[str]:
    """Which of :func:`equal_photos` lie in different parts, or classes, in words.

    Example:
        >>> differing([["a", "b", "c"], ["d", "e"]], {**dict.fromkeys("abd", "train"), "c": "test", "e": "train"})
        ['c (test) is a (train)']
    """
    return [
        f"{name} ({kind[name]}) is {names[0]} ({kind[names[0]]})"
        for names in equal
        for name in names[1:]
        if kind[name] != kind[names[0]]
    ]


def easily_confused(names: Sequence[str]) -> list[str]:
    r"""Names that look like an earlier one: they differ in case, spaces, leading zeros or letters that are not seen.

    Example:
        >>> easily_confused(["Ant", "bee", "ant", "1", "01", "a b", "a\u00a0b"])
        ["'Ant' and 'ant'", "'1' and '01'", "'a b' and 'a\\xa0b'"]
    """
    first: dict[str, str] = {}
    return [f"{known!r} and {name!r}" for name in names if (known := first.setdefault(_seen(name), name)) != name]


def _seen(name: str) -> str:
    """A name without what is hardly seen of it."""
    letters = "".join(letter for letter in unicodedata.normalize("NFKC", name) if unicodedata.category(letter) != "Cf")
    words = " ".join(letters.casefold().split())
    return words.lstrip("0") if words.isdecimal() else words
