"""Checks of arguments that several data sets share."""

from __future__ import annotations

import os
from collections.abc import Collection

from protometry.run_folder.command_line.user_path import user_path


def check_choice(name: str, value: object, choices: Collection[object]) -> None:
    """Raise unless an argument is one of its choices.

    Raises:
        ValueError: with the choices.

    Example:
        >>> check_choice("scheme", "cv71", ("cv70", "official"))
        Traceback (most recent call last):
            ...
        ValueError: Expected argument `scheme` to be one of ['cv70', 'official'], but got 'cv71'.
    """
    if value not in choices:
        raise ValueError(f"Expected argument `{name}` to be one of {list(choices)}, but got {value!r}.")


def check_no_file(name: str, folder: str) -> None:
    """Raise if an argument cannot be a folder because a file is there or above it.

    Raises:
        ValueError: with the file.

    Example:
        >>> check_no_file("data.cache", "/dev/null/deep")
        Traceback (most recent call last):
            ...
        ValueError: Expected argument `data.cache` to be a folder, but /dev/null is a file. Choose another folder.
    """
    place = user_path(folder)
    for path in (place, *place.parents):
        if os.path.lexists(path) and not os.path.isdir(path):
            raise ValueError(f"Expected argument `{name}` to be a folder, but {path} is a file. Choose another folder.")
