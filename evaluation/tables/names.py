"""Names of runs: the part of the paths to their folders that distinguishes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from protometry.evaluation.results.metrics_json import Result

LISTED = 3  # names of a group in a title


def run_names(results: Sequence[Result]) -> list[str]:
    """A name for each evaluation, as short as possible while all names differ."""
    paths = [result.run.resolve() for result in results]
    files = [result.path.resolve() for result in results]
    for finer in ([file.parent for file in files], files):
        paths = [own if paths.count(path) > 1 else path for path, own in zip(paths, finer, strict=True)]
    return telling_apart(paths)


def telling_apart(paths: Sequence[Path]) -> list[str]:
    """Paths without the folders at their begin and end that all of them share, but never without any.

    Example:
        >>> telling_apart([Path("/runs/a/seed0"), Path("/runs/b/c/seed0")]), telling_apart([Path("/runs/a")])
        (['a', 'b/c'], ['a'])
    """
    parts = [path.parts for path in paths]
    first = min(_shared(parts), min(map(len, parts)) - 1)
    last = min(_shared([each[:first:-1] for each in parts]), min(map(len, parts)) - first - 1)
    return ["/".join(each[first : len(each) - last]) for each in parts]


def _shared(parts: Sequence[Sequence[str]]) -> int:
    """How many of the first elements all have in common."""
    levels = list(zip(*parts, strict=False))
    return next((at for at, level in enumerate(levels) if len(set(level)) > 1), len(levels))


def group_name(names: Sequence[str], others: Sequence[str]) -> str:
    """A name for runs that are averaged: what their names begin with, unless others begin so, too.

    Example:
        >>> group_name(["pipnet/0", "pipnet/1"], ["qpm/0"]), group_name(["a0", "a1"], ["a2"]), group_name(["b"], [])
        ('pipnet/*', 'a0, a1', 'b')
    """
    begin = min(names)[: _shared([min(names), max(names)])]
    if len(names) > 1 and begin and not any(other.startswith(begin) for other in others):
        return f"{begin}*"
    return ", ".join(names) if len(names) <= LISTED else f"{names[0]}, … ({len(names)} runs)"
