"""Leakage between splits: photos that are equal or in two parts; and class names easily taken for one another."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

MIDDLE = 2**16  # bytes


def equal_photos(photos: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Lists of the ids of photos whose pixels are equal, whatever their files are called and say besides.

    Args:
        photos: id of each, and the hash of its pixels.

    Example:
        >>> equal_photos([("a.png", "x"), ("b.png", "y"), ("c.bmp", "x")])
        [['a.png', 'c.bmp']]
    """
    contents = defaultdict(list)
    for name, pixels in photos:
        contents[pixels].append(name)
    return [names for names in contents.values() if len(names) > 1]


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


def same_but_for_case(names: Sequence[str]) -> list[str]:
    """Names that differ from an earlier one in case alone, in words.

    Example:
        >>> same_but_for_case(["Ant", "bee", "ant"])
        ['Ant and ant']
    """
    first: dict[str, str] = {}
    return [f"{known} and {name}" for name in names if (known := first.setdefault(name.casefold(), name)) != name]
