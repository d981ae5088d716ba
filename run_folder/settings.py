"""What differs between the settings of a run and those requested now, by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from pkgutil import resolve_name
from typing import Any, get_type_hints

from protometry.run_folder.command_line.user_path import expand_paths

FREE_SETTINGS = ("runs", "experiment", "test_after_fit")  # change no result


class Effect(Enum):
    """The mark of an argument of a data module that does not decide both what is trained and what is evaluated.

    It stands in the annotation, ``num_workers: Annotated[int, Effect.NONE] = 0``; arguments without it change results.
    """

    NONE = "changes no result"
    TRAINING = "changes how a model is trained, but no image as an evaluation sees it"


def arguments_with(kind: type | str, *effects: Effect) -> set[str]:
    """Names of the arguments of a class and of its bases that have one of some marks.

    Args:
        kind: the class, or its import path.
        effects: the marks.

    Example:
        >>> from typing import Annotated
        >>> class Data:
        ...     def __init__(self, root: Annotated[str, Effect.NONE], fold: int = 0) -> None: ...
        >>> arguments_with(Data, Effect.NONE)
        {'root'}
    """
    names: set[str] = set()
    for base in (resolve_name(kind) if isinstance(kind, str) else kind).__mro__:
        init = vars(base).get("__init__")
        try:
            hints = get_type_hints(init, include_extras=True) if init else {}
        except NameError:  # of what is imported for type checkers only: such a class has no marks
            continue
        names |= {name for name, hint in hints.items() if set(effects) & set(getattr(hint, "__metadata__", ()))}
    return names


def changed_settings(stored: Mapping[str, Any], requested: Mapping[str, Any]) -> list[str]:
    """What differs between the ``config.yaml`` of a run and the settings requested now, besides what changes no result.

    Args:
        stored: content of ``config.yaml``.
        requested: the same, as it would be written now.

    Returns:
        For every argument that differs, down to the keys of its mappings, its name and both values; arguments that
        did not exist when the run began are left out.
    """
    differing = []
    for section, now in requested.items():
        before = stored.get(section, now)
        if section in FREE_SETTINGS:
            continue
        if not (isinstance(before, Mapping) and isinstance(now, Mapping)):
            differing += _differences(section, before, now)
            continue
        free = arguments_with(now["class_path"], Effect.NONE) if section == "data" else ()
        differing += changed_arguments(section, before, now, ("init_args",))
        differing += changed_arguments(section, before.get("init_args", {}), now.get("init_args", {}), free)
    return differing


def changed_arguments(
    section: str, stored: Mapping[str, Any], requested: Mapping[str, Any], free: Collection[str] = ()
) -> list[str]:
    """The differences between arguments that both have.

    Args:
        section: of the settings, for the names.
        stored: the arguments of a run.
        requested: the arguments now.
        free: names that may differ.

    Returns:
        Name and both values of each.
    """
    both = [name for name in requested if name in stored and name not in free]
    return [
        line
        for name in both
        for line in _differences(f"{section}.{name}", _plain(stored[name]), _plain(requested[name]))
    ]


def _differences(key: str, stored: Any, requested: Any) -> list[str]:
    """The differences, key by key; a missing key equals null, but for phases, where null removes one of the model's."""
    if stored == requested:
        return []
    if not (isinstance(stored, Mapping) and isinstance(requested, Mapping)):
        return [f"{key}: {stored!r} in the run, {requested!r} requested"]
    missing = "left to the model" if key.endswith(".phases") else None
    pairs = {name: (stored.get(name, missing), requested.get(name, missing)) for name in {**stored, **requested}}
    return [line for name, values in pairs.items() for line in _differences(f"{key}.{name}", *values)]


def _plain(value: Any) -> Any:
    """Tuples and lists compare equal, and so do the two ways to write a home folder."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else expand_paths(value)
