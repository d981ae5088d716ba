"""The arguments of models, by name."""

from __future__ import annotations

import inspect
from abc import ABCMeta
from typing import Any

from protometry.run_folder.command_line.messages import did_you_mean


def arguments_of(kind: type) -> set[str]:
    """Names of the arguments a model takes, those it passes on to its base included."""
    names: set[str] = set()
    for base in kind.__mro__:
        if "__init__" in vars(base):
            parameters = inspect.signature(vars(base)["__init__"]).parameters.values()
            names |= {p.name for p in parameters if p.kind is not p.VAR_KEYWORD}
            if all(p.kind is not p.VAR_KEYWORD for p in parameters):
                break
    return names - {"self"}


class NamesArguments(ABCMeta):
    """Classes that say what they lack, or which argument was probably meant, before Python refuses them."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make an object.

        Raises:
            TypeError: for an argument whose name is like that of another; the class may know others. For a class that
                lacks methods, too.
        """
        if missing := sorted(cls.__abstractmethods__):
            methods = ", ".join(f"`{name}`" for name in missing)
            raise TypeError(f"Expected {cls.__name__} to define {methods}, but it does not; see docs/add_a_model.md.")
        known = arguments_of(cls)
        for name in kwargs.keys() - known:
            if near := did_you_mean(name, known):
                raise TypeError(f"Expected arguments of {cls.__name__}, but got {name!r}.{near}")
        return ABCMeta.__call__(cls, *args, **kwargs)

    @property
    def __signature__(cls) -> inspect.Signature:
        """That of the constructor, which help and editors show."""
        _, *parameters = inspect.signature(cls.__init__).parameters.values()  # type: ignore[misc]  # of the class
        return inspect.Signature(parameters)
