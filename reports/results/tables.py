"""Tables of many runs: mean and deviation over folds and seeds, next to what a paper published."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence

from metrics.page import arrow
from reports.published.columns import PublishedColumn, cell, columns, footnotes, matches
from reports.published.numbers import Published, published
from reports.results.differences import differing, short, short_name, titles, told_apart, without
from reports.results.markdown import UNDEFINED, interval, lines, number, printed_unit
from reports.results.metrics_json import Measured, Result


def markdown(results: Sequence[Result], paper: str | None = None, across: Sequence[str] = ()) -> str:
    """Groups of comparable runs: several side by side in one table, or each in a table next to a paper's numbers.

    Runs are averaged only if they share data set, model, split, variant, explainer, protocol and everything about their
    training but fold and seed; what sets groups apart is named. The deviation is the sample standard deviation over
    runs; one run shows its own 95 % interval. A metric that is not applicable prints ``n/a`` with its reason below; an
    undefined value never counts as a number.

    Args:
        results: evaluations.
        paper: short name of a paper, or None.
        across: conditions in which averaged runs may differ.

    Returns:
        GitHub-flavoured Markdown.

    Raises:
        ValueError: if the paper or a condition is unknown, or a run gives the same metric twice under the same
            conditions.
    """
    records = published(paper) if paper is not None else []
    for name in across:
        if all(without(result.conditions, [name]) == result.conditions for result in results):
            raise ValueError(f"Expected argument `across` to name conditions of these runs, but got {name!r}.")
    by_conditions: dict[str, list[Result]] = {}
    for result in results:
        key = json.dumps(without(result.conditions, across), sort_keys=True)
        by_conditions.setdefault(key, []).append(result)
    groups = list(by_conditions.values())
    for group in groups:
        _refuse_repeats(group)
    apart = "\n".join(f"- {line}" for line in told_apart([group[0] for group in groups])) if len(groups) > 1 else ""
    numbered = " (the numbers are those of the columns)" if len(groups) > 2 else ""
    apart = apart and f"Not averaged, because they differ in{numbered}:\n\n{apart}"
    if len(groups) > 1 and paper is None:
        parts = [_side_by_side(groups), apart, *map(_conditions, groups)]
    else:
        parts = [apart, *(_section(group, records) for group in groups)]
    return "\n\n".join(part for part in parts if part)


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
    keys = _keys([group])
    found = [match for match in matches(group[0], records) if match.key in keys]
    shown = columns(found)
    total = _total(group)
    header = ["metric", "unit", "mean ± std" if total > 1 else "value [95 %]", "n", *(each.title for each in shown)]
    rows = [_row(key, group, total, shown) for key in keys]
    notes = footnotes(shown)
    if records and not found:
        notes.append(f"{records[0].paper} gives nothing for {group[0].model} on {group[0].dataset} in these metrics")
    return _conditions(group, lines(header, rows, left=2), notes)


def _side_by_side(groups: Sequence[Sequence[Result]]) -> str:
    """One column per group, under the model's name and what sets it apart from other groups of that model."""
    rows = []
    for key in _keys(groups):
        entries = [_entries(key, group) for group in groups]
        first = next((entry for found in entries for entry in found), None)
        name = f"{key} {arrow(first.higher_is_better) if first else ''}".rstrip()
        rows.append([name, printed_unit(first.unit) if first else "", *(_cell(key, group) for group in groups)])
    return "\n".join(lines(["metric", "unit", *titles([group[0] for group in groups])], rows, left=2))


def _cell(key: str, group: Sequence[Result]) -> str:
    entries, total = _entries(key, group), _total(group)
    defined = [entry for entry in entries if entry.value is not None]
    partial = f" ({len(defined)}/{total})" if 0 < len(defined) < total else ""
    return _ours(entries, defined) + partial


def _keys(groups: Sequence[Sequence[Result]]) -> list[str]:
    results = [result for group in groups for result in group]
    return list(dict.fromkeys(key for names in ("metrics", "skipped") for r in results for key in getattr(r, names)))


def _total(group: Sequence[Result]) -> int:
    return len({result.run.resolve() for result in group})


def _conditions(group: Sequence[Result], table_lines: Sequence[str] = (), notes: Sequence[str] = ()) -> str:
    """Heading, conditions, perhaps a table, and notes."""
    notes = [*_own_footnotes(_keys([group]), group), *notes]
    heading = _heading(group, _total(group)) + ("; n counts runs" if table_lines else "")
    parts = [heading, "\n".join(table_lines), "\n".join(f"- {note}" for note in notes)]
    return "\n\n".join(part for part in parts if part)


def _heading(group: Sequence[Result], total: int) -> str:
    first = group[0]
    conditions = {
        name: value
        for name, value in first.conditions.items()
        if name not in ("dataset", "model", "split", "folds", "data", "evaluation_code", "other_data", "training")
        and value is not None
    }
    if first.fold is not None:
        conditions["folds"] = " ".join(str(fold) for fold in sorted({r.fold for r in group if r.fold is not None}))
    conditions["seeds of perturbations"] = " ".join(str(seed) for seed in sorted({result.seed for result in group}))
    data = first.protocol.get("data") or {}
    conditions |= {f"data.{name}": value for name, value in data.items() if value not in (None, [], "")}
    told = ", ".join(f"{name} {value}" for name, value in conditions.items())
    runs = f"{total} runs" if total > 1 else "1 run"
    marks = f", {first.cut_short}" if first.cut_short else ""
    if other := first.other_data:
        marks += f", other data than trained on ({other['config']}, {other['matched']} of {other['classes']} classes)"
    return f"### {first.model} on {first.dataset}, {first.split} split, {runs}{marks}\n\n{told}"


def _row(key: str, group: Sequence[Result], total: int, shown: Sequence[PublishedColumn]) -> list[str]:
    entries = _entries(key, group)
    unit = entries[0].unit if entries else ""
    direction = arrow(entries[0].higher_is_better) if entries else ""
    defined = [entry for entry in entries if entry.value is not None]
    count = str(total) if len(defined) == total else f"{len(defined)}/{total}"
    others = [cell(column.cells[key], unit) if key in column.cells else "" for column in shown]
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
    notes = []
    for place, values in differing([{**result.conditions, **result.incidentals} for result in group]).items():
        notes.append(f"not the same in all runs: {short_name(place)}: {' vs '.join(dict.fromkeys(map(short, values)))}")
    if not all(result.is_recorded for result in group):
        notes.append(
            "not recorded, so runs may differ in them: arguments of the model, phases, epochs, batch size, precision, "
            "code version"
        )
    return notes
