"""Leakage between splits: photos that are equal or in two parts; and class names easily taken for one another."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

MIDDLE = 2**16  # bytes


def equal_photos(photos: Iterable[tuple[str, Path]]) -> list[list[str]]:
    """Lists of the ids of photos whose files are equal byte for byte; only files of equal size are read."""
    sizes, contents = defaultdict(list), defaultdict(list)
    for name, path in photos:
        sizes[path.stat().st_size].append((name, path))
    for alike in sizes.values():
        for name, path in alike if len(alike) > 1 else ():
            with path.open("rb") as file:
                contents[hashlib.file_digest(file, "sha256").digest()].append(name)
    return [names for names in contents.values() if len(names) > 1]


def middle_hash(path: Path) -> str:
    """SHA-256 of the middle of a file, of up to 64 KiB."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - MIDDLE) // 2)
        return hashlib.sha256(file.read(MIDDLE)).hexdigest()


def in_two_parts(equal: Sequence[Sequence[str]], part_of: Mapping[str, str]) -> list[str]:
    """Which of :func:`equal_photos` lie in different parts, in words.

    Example:
        >>> in_two_parts([["a", "b", "c"], ["d", "e"]], {**dict.fromkeys("abd", "train"), "c": "test", "e": "train"})
        ['c (test) is a (train)']
    """
    return [
        f"{name} ({part_of[name]}) is {names[0]} ({part_of[names[0]]})"
        for names in equal
        for name in names[1:]
        if part_of[name] != part_of[names[0]]
    ]


def same_but_for_case(names: Sequence[str]) -> list[str]:
    """Names that differ from an earlier one in case alone, in words.

    Example:
        >>> same_but_for_case(["Ant", "bee", "ant"])
        ['Ant and ant']
    """
    first: dict[str, str] = {}
    return [f"{known} and {name}" for name in names if (known := first.setdefault(name.casefold(), name)) != name]
