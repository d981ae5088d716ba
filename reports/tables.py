"""Many runs in one table: mean and deviation over folds and seeds, beside what a paper published."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence

from reports.markdown import UNDEFINED, arrow, interval, lines, number, printed_unit
from reports.published import Published, published
from reports.published_columns import Column, cell, columns, footnotes, matches
from reports.runs import Measured, Result, collect


def table(runs: list[str], published: str | None = None) -> None:
    """Print the mean ± standard deviation over runs of every metric, beside a paper's numbers.

    Args:
        runs: run folders, their `evaluation` folders, or metrics.json files.
        published: short name of a paper whose numbers for the same data set and model are printed beside them.
    """
    print(markdown(collect(runs), published))


def markdown(results: Sequence[Result], paper: str | None = None) -> str:
    """One table per group of comparable runs.

    Runs are averaged only if they share data set, model, split, variant, explainer and protocol. The deviation is the
    sample standard deviation over runs; one run shows its own 95 % interval. A metric that is not applicable prints
    ``n/a`` with its reason below; an undefined value never counts as a number.

    Args:
        results: evaluations.
        paper: short name of a paper, or None.

    Returns:
        GitHub-flavoured Markdown.

    Raises:
        ValueError: if the paper is unknown, or a run gives the same metric twice under the same conditions.
    """
    records = published(paper) if paper is not None else []
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(json.dumps(result.conditions, sort_keys=True), []).append(result)
    sections = []
    for group in groups.values():
        _refuse_repeats(group)
        sections.append(_section(group, records))
    return "\n\n".join(sections)


def _refuse_repeats(group: Sequence[Result]) -> None:
    """Two evaluations of one model are not two runs."""
    seen: dict[tuple[str, str], Result] = {}
    for result in group:
        for key in result.metrics:
            first = seen.setdefault((str(result.run.resolve()), key), result)
            if first is not result:
                raise ValueError(
                    f"Expected every run to give {key} once under the same conditions, but got {first.path} and "
                    f"{result.path}. Name one of them."
                )


def _section(group: Sequence[Result], records: Sequence[Published]) -> str:
    keys = list(dict.fromkeys(key for names in ("metrics", "skipped") for r in group for key in getattr(r, names)))
    found = [match for match in matches(group[0], records) if match.key in keys]
    beside = columns(found)
    total = len({result.run.resolve() for result in group})
    header = ["metric", "unit", "mean ± std" if total > 1 else "value [95 %]", "n", *(each.title for each in beside)]
    rows = [_row(key, group, total, beside) for key in keys]
    notes = [*_own_footnotes(keys, group), *footnotes(beside)]
    if records and not found:
        notes.append(f"{records[0].paper} gives nothing for {group[0].model} on {group[0].dataset} in these metrics")
    parts = [_heading(group, total), "\n".join(lines(header, rows, left=2))]
    return "\n\n".join([*parts, "\n".join(f"- {note}" for note in notes)] if notes else parts)


def _heading(group: Sequence[Result], total: int) -> str:
    first = group[0]
    conditions = {
        name: value
        for name, value in first.conditions.items()
        if name not in ("dataset", "model", "split", "folds", "data") and value is not None
    }
    if first.fold is not None:
        conditions["folds"] = " ".join(str(fold) for fold in sorted({r.fold for r in group if r.fold is not None}))
    conditions["seeds of perturbations"] = " ".join(str(seed) for seed in sorted({result.seed for result in group}))
    data = first.protocol.get("data") or {}
    conditions |= {f"data.{name}": value for name, value in data.items() if value not in (None, [], "")}
    told = ", ".join(f"{name} {value}" for name, value in conditions.items())
    runs = f"{total} runs" if total > 1 else "1 run"
    return f"### {first.model} on {first.dataset}, {first.split} split, {runs}\n\n{told}; n counts runs"


def _row(key: str, group: Sequence[Result], total: int, beside: Sequence[Column]) -> list[str]:
    entries = _entries(key, group)
    unit = entries[0].unit if entries else ""
    direction = arrow(entries[0].higher_is_better) if entries else ""
    defined = [entry for entry in entries if entry.value is not None]
    count = str(total) if len(defined) == total else f"{len(defined)}/{total}"
    others = [cell(column.cells[key], unit) if key in column.cells else "" for column in beside]
    ours = _ours(entries, defined)
    return [f"{key} {direction}".rstrip(), printed_unit(unit), ours, count, *others]


def _ours(entries: Sequence[Measured], defined: Sequence[Measured]) -> str:
    if not entries:
        return "n/a"
    if not defined:
        return UNDEFINED
    unit, values = defined[0].unit, [entry.value for entry in defined if entry.value is not None]
    if len(values) == 1:
        return f"{number(values[0], unit)} {interval(defined[0].low, defined[0].high, unit)}".rstrip()
    return f"{number(statistics.fmean(values), unit)} ± {number(statistics.stdev(values), unit)}"


def _entries(key: str, group: Sequence[Result]) -> list[Measured]:
    return [result.metrics[key] for result in group if key in result.metrics]


def _own_footnotes(keys: Sequence[str], group: Sequence[Result]) -> list[str]:
    notes: dict[str, list[str]] = {}
    for key in keys:
        reasons = dict.fromkeys(result.skipped[key] for result in group if key in result.skipped)
        where = "n/a" if not _entries(key, group) else "n/a in some runs"
        for reason in reasons:
            notes.setdefault(f"{where}, because {reason}", []).append(key)
        undefined = sum(entry.value is None for entry in _entries(key, group))
        if undefined:
            notes.setdefault(f"undefined in {undefined} of {len(_entries(key, group))} results", []).append(key)
    told = [f"{text}: {', '.join(found)}" for text, found in notes.items()]
    return told + _incidental_footnotes(group)


def _incidental_footnotes(group: Sequence[Result]) -> list[str]:
    names = dict.fromkeys(name for result in group for name in result.incidentals)
    values = {name: list(dict.fromkeys(str(result.incidentals.get(name)) for result in group)) for name in names}
    return [
        f"not the same in all runs: {name} ({', '.join(found)})" for name, found in values.items() if len(found) > 1
    ]
