"""Import paths of classes in runs and configs that were written before our packages lay in ``protometry``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

PACKAGES = "callbacks|datamodules|evaluation|explanations|lightning_modules"
FORMER = re.compile(rf"(--\S+=)?((?:{PACKAGES})(?:\.\w+)*\.[A-Z]\w*)")


def with_current_names(content: Any) -> Any:
    """Plain data with the current import path of every class in it.

    Args:
        content: mappings, lists and plain values; class paths are under ``_class_path`` and ``class_path``.

    Example:
        >>> with_current_names({"data": {"class_path": "datamodules.Nico"}, "model": {"class_path": "mine.Model"}})
        {'data': {'class_path': 'protometry.datamodules.Nico'}, 'model': {'class_path': 'mine.Model'}}
    """
    if isinstance(content, list):
        return [with_current_names(value) for value in content]
    if not isinstance(content, Mapping):
        return content
    return {
        key: current_name(value) if key in ("class_path", "_class_path") else with_current_names(value)
        for key, value in content.items()
    }


def current_name(argument: Any) -> Any:
    """The current import path of a class, perhaps behind a flag; everything else as it is.

    Example:
        >>> current_name("--data=datamodules.Nico"), current_name("mine.Model")
        ('--data=protometry.datamodules.Nico', 'mine.Model')
    """
    found = FORMER.fullmatch(argument) if isinstance(argument, str) else None
    return f"{found[1] or ''}protometry.{found[2]}" if found else argument
