"""Checks of arguments that several data sets share."""

from __future__ import annotations

from collections.abc import Collection


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
