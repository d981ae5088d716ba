"""What distinguishes results: conditions that differ between them, named by their path in metrics.json."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from protometry.evaluation.results.metrics_json import UNRECORDED, Result
from protometry.run_folder.command_line.messages import counted

LONGEST = 60
LONGEST_IN_TITLE = 24
MOST_IN_TITLE = 3
# a schedule that was cut short is described in words
_INCOMPLETE = ("training.complete", "training.epochs", "training.phase", "training.projected")


class _NotStated:
    def __repr__(self) -> str:
        return "not stated"


NOT_STATED = _NotStated()


def differing(values: Sequence[Any], path: str = "") -> dict[str, list[Any]]:
    """The leaves of nested mappings that differ.

    Returns:
        Path, such as ``"training.batch_size"``, to the value of every result; :data:`NOT_STATED` where there is none.

    Example:
        >>> differing([{"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 4}}])
        {'b.c': [2, 4], 'b.d': [3, not stated]}
    """
    if all(value == values[0] for value in values):
        return {}
    if not all(isinstance(value, Mapping) for value in values):
        return {path: list(values)}
    values_by_path: dict[str, list[Any]] = {}
    for name in dict.fromkeys(name for value in values for name in value):
        inner = [value.get(name, NOT_STATED) for value in values]
        values_by_path |= differing(inner, f"{path}.{name}" if path else name)
    return values_by_path


def named(differences: Mapping[str, Sequence[Any]]) -> list[str]:
    """Differences as they are printed.

    Example:
        >>> named({"training.batch_size": [64, NOT_STATED], "training.phases.joint": [{"epochs": 6}, NOT_STATED]})
        ['batch_size: 64 vs not stated', 'phases.joint: 6 epochs vs none']
    """
    return [f"{short_name(path)}: {' vs '.join(_stated(path, values))}" for path, values in differences.items()]


def _stated(path: str, values: Sequence[Any]) -> list[str]:
    """Values on a line; a phase or a start that a run does not state is one that it does not have."""
    optional = path == "training.model.init_from" or path.rpartition(".")[0] == "training.phases"
    return ["none" if optional and value is NOT_STATED else short(value) for value in values]


def paths(conditions: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """The paths of all conditions and of the blocks that hold them.

    Example:
        >>> list(paths({"a": 1, "b": {"c": 2}}))
        ['a', 'b', 'b.c']
    """
    for name, value in conditions.items():
        yield (inner := f"{path}.{name}" if path else name)
        if isinstance(value, Mapping):
            yield from paths(value, inner)


def without(conditions: Mapping[str, Any], paths: Collection[str], path: str = "") -> dict[str, Any]:
    """Conditions but for some paths.

    Args:
        conditions: nested mappings.
        paths: as they are printed, or in full; all below them goes too.
        path: of the block that holds ``conditions``.
    """
    left = {}
    for name, value in conditions.items():
        inner = f"{path}.{name}" if path else name
        if inner not in paths and short_name(inner) not in paths:
            left[name] = without(value, paths, inner) if isinstance(value, Mapping) else value
    return left


def words_apart(results: Sequence[Result], by_dataset: bool = False) -> list[list[str]]:
    """The few conditions that set results apart from others of their model, at most three, in words."""
    words = []
    for result in results:
        rivals = [
            other
            for other in results
            if other.model == result.model and (not by_dataset or other.dataset == result.dataset)
        ]
        words.append(_words(rivals)[rivals.index(result)])
    return words


def _words(rivals: Sequence[Result]) -> list[list[str]]:
    """What sets apart results of one model, for each: the first conditions that set more of them apart.

    Settings of the data come first, and last what only some of them state.
    """
    words = [[rival.incomplete_training] if rival.incomplete_training else [] for rival in rivals]
    words = [
        each if rival.is_recorded else [f"training {UNRECORDED}"] for each, rival in zip(words, rivals, strict=True)
    ]
    differences = differing([rival.conditions for rival in rivals])
    named = 0
    order = sorted(differences, key=lambda path: (NOT_STATED in differences[path], not path.startswith("data.")))
    for path, values in ((path, differences[path]) for path in order):
        if path.startswith(_INCOMPLETE) or any(len(short(value)) > LONGEST_IN_TITLE for value in values):
            continue
        more = [[*each, _in_words(path, value)] for each, value in zip(words, values, strict=True)]
        if named < MOST_IN_TITLE and len(set(map(str, more))) > len(set(map(str, words))):
            words, named = more, named + 1
    return words


def _in_words(path: str, value: Any) -> str:
    """A condition as part of a title.

    Example:
        >>> _in_words("pruned", False), _in_words("training.model.slots_per_class", 3)
        ('not pruned', 'slots per class 3')
    """
    last = short_name(path).split(".")
    name = " ".join(last[1:] if len(last) > 1 else last).replace("_", " ")
    if isinstance(value, bool):
        return name if value else f"not {name}"
    return f"no {name}" if value is None else f"{name} {short(value)}"


def listed_differences(results: Sequence[Result]) -> list[str]:
    """Lines that name all differences between the columns of a table.

    Arguments and phases are compared among columns of one model only, settings of the data where all are on one data
    set, everything else among all.
    """
    apart = ["model", "training.model", "training.phases"]
    apart += ["data"] if len({result.dataset for result in results}) > 1 else []  # settings of different data modules
    pair = len(results) == 2
    lines = _lines([without(result.conditions, apart) for result in results], range(len(results)), pair)
    for model in dict.fromkeys(result.model for result in results):
        own = [index for index, result in enumerate(results) if result.model == model]
        blocks = [results[index].training for index in own]
        recorded = [{name: block.get(name, NOT_STATED) for name in ("model", "phases")} for block in blocks]
        lines += _lines([{"training": each} for each in recorded], own, pair)
    return lines


def _lines(conditions: Sequence[Mapping[str, Any]], columns: Sequence[int], pair: bool) -> list[str]:
    """As :func:`named` for a pair of columns; else every value with the numbers of the columns that have it."""
    apart = differing(conditions)
    if pair:
        return named(apart)
    lines = []
    for path, values in apart.items():
        having: dict[str, list[str]] = {}
        for column, value in zip(columns, _stated(path, values), strict=True):
            having.setdefault(value, []).append(str(column + 1))
        readings = [f"{value} ({', '.join(those)})" for value, those in having.items()]
        lines.append(f"{short_name(path)}: {' vs '.join(readings)}")
    return lines


def short_name(path: str) -> str:
    """A path without the name of the block that it stands in."""
    return path.removeprefix("training.")


def short(value: Any) -> str:
    """A value on a line; a phase as its length, other data as its config, what is long without its end."""
    if value is None:
        return "none"
    if isinstance(value, Mapping) and "epochs" in value:
        return counted(value["epochs"], "epoch")
    if isinstance(value, Mapping) and "config" in value:
        return str(value["config"])
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, Mapping | list) else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
