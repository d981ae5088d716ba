"""Paths as users write them, and as they are shown to them."""

from __future__ import annotations

import os
import stat
from pathlib import Path, PurePath
from typing import Any

from jsonargparse import Namespace


def user_path(path: str | Path) -> Path:
    """A path in which ``~`` or ``~name`` at the start is a home folder, as in a shell.

    Command lines need no call: :class:`.StrictParser` does it for everything it
    parses.

    Args:
        path: as given from Python; a relative one stays relative.
    """
    return Path(os.path.expanduser(path))


def expand_paths(settings: Any) -> Any:
    """The same settings with home folders in place of ``~``, which shells leave after ``=`` and yaml everywhere.

    It does not take the names of arguments: no text of another meaning begins with the home folder of a user.

    Args:
        settings: of a parser or a checkpoint; a namespace is changed in place.

    Example:
        >>> given = {"root": "~/birds", "files": [Path("~"), "a~b"], "text": "~5 minutes", "seed": 0}
        >>> expand_paths(given) == given | {"root": str(Path.home() / "birds"), "files": [Path.home(), "a~b"]}
        True
    """
    if isinstance(settings, str):
        return os.path.expanduser(settings)
    if isinstance(settings, PurePath):
        return user_path(str(settings))
    if isinstance(settings, Namespace):
        vars(settings).update(expand_paths(vars(settings)))
    elif type(settings) is dict:
        return {name: expand_paths(value) for name, value in settings.items()}
    elif type(settings) in (list, tuple):
        return type(settings)(map(expand_paths, settings))
    return settings


def regular(path: Path) -> Path:
    """The path itself if it is a regular file; a pipe or a device could be read for ever.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is something else, without the path.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("it is a folder, a pipe or a device")
    return path


def shown(path: str | Path) -> str:
    """A path as it is printed: from the working folder where it lies below it.

    Example:
        >>> shown(Path.cwd() / "runs" / "quickstart"), shown("/data/runs/quickstart")
        ('runs/quickstart', '/data/runs/quickstart')
    """
    path, here = Path(path), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
