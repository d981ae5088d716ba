"""Classes that checkpoints name, imported only from packages that are trusted.

Importing a module runs it, so a checkpoint that names its own module would run code. The files of all modules are
therefore looked up before any is imported.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from protometry.run_folder.command_line.parser import StrictParser
from protometry.run_folder.layout import folder_of_run, is_run

PROJECT = "protometry"
IMPORT_PATH = re.compile(r"[^.]{0,100}(\.[^.]{1,100}){0,19}")  # a package of thousands of parts exhausts the stack
Kind = TypeVar("Kind")


def stored_class(
    arguments: Mapping[str, Any], base: type[Kind], path: str | Path, allow_classes: Sequence[str] = ()
) -> type[Kind]:
    """The class that a checkpoint names, after a look at every class path in its arguments.

    Args:
        arguments: stored by a checkpoint, with the import path of their class under ``_class_path``.
        base: what the class must be derived from.
        path: of the checkpoint.
        allow_classes: packages or modules that may be imported besides this project's.

    Raises:
        ValueError: before anything is imported, if a class path lies outside this project and ``allow_classes``, or in
            the folder of a run; if the class cannot be imported or does not derive from ``base``.
    """
    for named in class_paths(arguments):
        _refuse_untrusted(named, Path(path), allow_classes)
    class_path = arguments.get("_class_path")
    module, _, name = str(class_path).rpartition(".")
    try:
        stored = getattr(importlib.import_module(module), name, None) if module else None
    except ImportError as error:
        raise ValueError(
            f"Expected {class_path!r}, which {path} names, to be importable, but {error}. Put its module on PYTHONPATH."
        ) from error
    if not (inspect.isclass(stored) and issubclass(stored, base)):
        raise ValueError(f"Expected {path} to name a {base.__name__}, but it names {class_path!r}.")
    return stored


def made_as_stored(kind: type[Kind], stored: Mapping[str, Any], path: str | Path, **changes: Any) -> Kind:
    """An object made from the arguments in a checkpoint, each of the type in the signature of its class.

    Args:
        kind: the class, as :func:`stored_class` gives it.
        stored: arguments; names that begin with an underscore are none.
        path: of the checkpoint.
        changes: arguments that replace stored ones.

    Raises:
        ValueError: if the class does not take them.
    """
    arguments = {name: value for name, value in stored.items() if not name.startswith("_")}
    parser = StrictParser(exit_on_error=False)
    parser.add_class_arguments(kind, fail_untyped=False)
    try:
        parser.parse_object(arguments)
        return kind(**(arguments | changes))
    except (OSError, MemoryError):
        raise
    except Exception as error:  # a constructor with arbitrary arguments may raise any type
        if str(error).startswith("Expected"):
            raise
        raise ValueError(f"Expected {path} to hold arguments of {kind.__name__}, but {error}.") from error


def class_paths(arguments: Any) -> Iterator[str]:
    """All import paths of classes in nested plain data.

    Args:
        arguments: mappings, lists and plain values; class paths are under ``_class_path`` and ``class_path``.

    Example:
        >>> list(class_paths({"_class_path": "a.Model", "head": [{"class_path": "b.Head", "init_args": {"n": 2}}]}))
        ['a.Model', 'b.Head']
    """
    if isinstance(arguments, Mapping):
        for key, value in arguments.items():
            if key in ("_class_path", "class_path") and value is not None:
                yield str(value)
            else:
                yield from class_paths(value)
    elif isinstance(arguments, list | tuple):
        for value in arguments:
            yield from class_paths(value)


def foreign_packages(arguments: Any) -> list[str]:
    """Packages outside this project whose classes :func:`class_paths` finds, each once.

    Example:
        >>> foreign_packages([{"_class_path": "my_package.Model"}, {"class_path": "protometry.datamodules.Nico"}])
        ['my_package']
    """
    return sorted({path.split(".")[0] for path in class_paths(arguments)} - {PROJECT})


def _refuse_untrusted(class_path: str, checkpoint: Path, allow_classes: Sequence[str]) -> None:
    if not IMPORT_PATH.fullmatch(class_path):
        raise ValueError(
            f"Expected {checkpoint} to name classes by at most 20 names of at most 100 letters with dots between them, "
            f"but got {class_path[:60]!r} …"
        )
    module = class_path.rpartition(".")[0]
    top = class_path.split(".")[0]
    if top == PROJECT:
        return
    if not any(f"{module}.".startswith(f"{allowed}.") for allowed in allow_classes):
        raise ValueError(
            f"Expected {checkpoint} to name classes of this project, but it names {class_path!r}, whose code would be "
            f"run. If you trust it, allow it with `--allow_classes {top}`."
        )
    own = folder_of_run(checkpoint).resolve()
    for file in _files(module):
        for place in (*file.absolute().parents, *file.resolve().parents):
            if place == own or is_run(place):
                raise ValueError(
                    f"Expected the class {class_path!r} of {checkpoint} to lie outside the folders of runs, but it is "
                    f"defined in {file}. Read that file; if you trust it, move it to a package of yours."
                )


def _files(module: str) -> Iterator[Path]:
    """The files that importing a module runs, its packages first; nothing is imported to find them."""
    places: Sequence[str] | None = None
    for depth, name in enumerate(module.split(".")):
        spec = _spec(name) if depth == 0 else PathFinder.find_spec(name, places)
        if spec is None:
            return  # importing it fails, or gives what is there already
        if spec.has_location and spec.origin:
            yield Path(spec.origin)
        places = list(spec.submodule_search_locations or ())


def _spec(name: str) -> ModuleSpec | None:
    try:
        return find_spec(name)
    except ValueError:  # no name at all, or a script that runs as __main__
        return None
