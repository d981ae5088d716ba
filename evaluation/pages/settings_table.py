"""The settings of a training and of an evaluation as the lines of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OMITTED: tuple[Any, ...] = (None, [], {}, "")  # says that nothing was asked for


def phase_lines(training: Mapping[str, Any]) -> list[dict[str, str]]:
    """What each phase trained, in the order of the schedule: its name, epochs, rates, losses and actions."""
    epochs, lines = training.get("epochs") or {}, []
    for name, phase in (training.get("phases") or {}).items():
        first, last = (in_words(phase.get(when)) for when in ("on_enter", "on_exit"))
        actions = [text for text in (first and f"first {first}", last and f"at the end {last}") if text]
        columns = {"phase": name, "epochs": f"{epochs.get(name, 0)} of {phase.get('epochs')}"}
        columns |= {"trained, with its learning rate": in_words(phase.get("trainable"))}
        lines.append(columns | {"losses": in_words(phase.get("losses")), "actions": "; ".join(actions)})
    return lines


def setting_lines(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Name and value of every setting that was made."""
    said = [(name.replace("_", " "), in_words(value)) for name, value in settings.items()]
    return [(name, value) for name, value in said if value]


def in_words(value: Any) -> str:
    """Plain data in a line, empty for nothing.

    Example:
        >>> in_words({"name": "AdamW", "kwargs": {"weight_decay": 0.0}, "key": None}), in_words([0.0, True])
        ('name AdamW, kwargs (weight decay 0)', '0, yes')
    """
    if isinstance(value, Mapping):
        parts = [(name.replace("_", " "), item) for name, item in value.items() if item not in OMITTED]
        inside = [
            (name, f"({in_words(item)})" if isinstance(item, Mapping) else in_words(item)) for name, item in parts
        ]
        return ", ".join(f"{name} {text}" for name, text in inside)
    if isinstance(value, list):
        return ", ".join(map(in_words, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else "" if value is None else str(value)
