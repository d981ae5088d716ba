"""Import paths of classes in runs and configs that were written before our packages lay in ``protometry``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FORMER = ("callbacks", "datamodules", "evaluation", "explanations", "lightning_modules", "metrics")  # top-level then


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
    return {key: _current(key, value) for key, value in content.items()}


def _current(key: Any, value: Any) -> Any:
    if key in ("class_path", "_class_path") and str(value).split(".")[0] in FORMER:
        return f"protometry.{value}"
    return with_current_names(value)
