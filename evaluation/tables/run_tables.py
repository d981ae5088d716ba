"""Tables of many runs: means and spreads over folds and seeds, next to what a paper published."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from protometry.evaluation.published.columns import Match, PublishedColumn, columns, footnotes, matches
from protometry.evaluation.published.numbers import Published, published
from protometry.evaluation.results.differences import listed_differences
from protometry.evaluation.results.metrics_json import Result
from protometry.evaluation.results.runs import passed_over, read_from
from protometry.evaluation.results.schema import Entry
from protometry.evaluation.tables.group_notes import own_notes, shared_conditions
from protometry.evaluation.tables.groups import Group, groups_of, keys_of
from protometry.evaluation.tables.markdown import printed_unit
from protometry.evaluation.tables.records import NOT_MEASURED, in_brackets, measured, printed, quoted
from protometry.evaluation.tables.renderers import Table, rendered
from protometry.metrics.page import arrow

# by whether a group has folds and seeds
SPREADS = {
    (False, False): "value [95 %]",
    (False, True): "mean ± std over seeds",
    (True, False): "mean ± std over folds",
    (True, True): "mean ± std over folds ± over seeds",
}


def text_of(results: Sequence[Result], form: str, paper: str | None = None, across: Sequence[str] = ()) -> str:
    """The table of runs as "markdown", "csv", "json" or "latex"; the rest is as for :func:`tables_of`."""
    return rendered(form, lambda: tables_of(results, paper, across), lambda: records(results, paper, across))


def tables_of(results: Sequence[Result], paper: str | None = None, across: Sequence[str] = ()) -> list[Table]:
    """Groups of comparable runs: several side by side in one table, or each in a table next to a paper's numbers.

    Runs are averaged only if they share data set, model, split, variant, explainer, protocol and everything about their
    training but fold and seed; what distinguishes groups is named. Means and spreads come from
    :func:`~protometry.evaluation.tables.groups.average`; one run shows its own 95 % interval. A metric that is not
    applicable prints ``n/a`` with its reason below, one that was not measured a dash; an undefined value never counts
    as a number.

    Raises:
        ValueError: if the paper or a condition is unknown, or a run gives the same metric twice under the same
            conditions.
    """
    numbers = published(paper) if paper is not None else []
    groups = groups_of(results, across)
    apart = listed_differences([group.first for group in groups]) if len(groups) > 1 else []
    numbered = " (numbers refer to the columns)" if len(groups) > 2 else ""
    apart_note = Table(text=f"Not averaged, because they differ in{numbered}:", notes=apart) if apart else Table()
    if len(groups) > 1 and paper is None:
        return [_side_by_side(groups), apart_note, *(_conditions(group, group.title) for group in groups)]
    return [apart_note, *(_section(group, numbers, group.title if apart else group.first.model) for group in groups)]


def _section(group: Group, numbers: Sequence[Published], title: str) -> Table:
    """A group next to the numbers of a paper."""
    matched = [match for match in matches(group.first, numbers) if match.key in group.keys]
    published_columns = columns(matched)
    spread = SPREADS[group.has_folds, group.has_seeds]
    header = ["metric", "unit", spread, "n", *(column.title for column in published_columns)]
    rows = [_row(key, group, published_columns) for key in group.keys]
    notes = footnotes(published_columns)
    if numbers and not matched:
        first = group.first
        notes.append(f"{numbers[0].paper} gives nothing for {first.model} on {first.dataset} in these metrics")
    return _conditions(group, title, header, rows, notes)


def _row(key: str, group: Group, published_columns: Sequence[PublishedColumn]) -> list[str]:
    first, average = group.first_entry(key), group.average(key)
    count = str(group.total) if average.runs == group.total else f"{average.runs}/{group.total}"
    if group.has_folds and group.has_seeds:
        count = f"{average.folds} fold{'s' * (average.folds != 1)}, {count} runs"
    unit = first.unit if first else ""
    others = [_published(column.cells.get(key, []), unit) for column in published_columns]
    return [*_named(key, first), _ours(key, group), count, *others]


def _named(key: str, first: Entry | None) -> list[str]:
    """The first two cells of a metric: its name with the direction, and its unit."""
    return [f"{key} {arrow(first.higher_is_better)}".rstrip(), printed_unit(first.unit)] if first else [key, ""]


def _published(matched: Sequence[Match], unit: str) -> str:
    """What a paper gives for a metric, with its marks; a number that two tables repeat is printed once."""
    keys = {match.record.metric_key for match in matched}
    texts = []
    for record in (match.record for match in matched):
        which = [f"{name}={value}" for name, value in record.key_qualifiers.items()] if len(keys) > 1 else []
        cell = quoted(record)
        texts.append(printed(cell, unit) + in_brackets([*which, *cell.marks]))
    return "; ".join(dict.fromkeys(texts))


def _side_by_side(groups: Sequence[Group]) -> Table:
    """One column per group."""
    rows = []
    for key in keys_of([result for group in groups for result in group.results]):
        first = next((entry for group in groups if (entry := group.first_entry(key))), None)
        rows.append([*_named(key, first), *(_cell(key, group) for group in groups)])
    return Table(header=["metric", "unit", *(group.title for group in groups)], rows=rows)


def _cell(key: str, group: Group) -> str:
    runs = group.average(key).runs
    partial = f" ({runs}/{group.total})" if 0 < runs < group.total else ""
    return _ours(key, group) + partial


def _ours(key: str, group: Group) -> str:
    """The mean with the spreads that the group has, or the interval of a single run."""
    cell, first = measured(group, key), group.first_entry(key)
    return "–" if cell.reason == NOT_MEASURED else printed(cell, first.unit if first else "")


def _conditions(
    group: Group, title: str, header: Sequence[str] = (), rows: Sequence[Sequence[str]] = (), notes: Sequence[str] = ()
) -> Table:
    """Heading, conditions, perhaps a table, and notes."""
    marks = f", {group.first.incomplete_training}" if group.first.incomplete_training else ""
    if other := group.first.other_data:
        marks += f", other data than trained on ({other['config']}, {other['matched']} of {other['classes']} classes)"
    runs = f"{group.total} runs" if group.total > 1 else "1 run"
    heading = f"{title} on {group.first.dataset}, {group.first.split} split, {runs}{marks}"
    counted = "; n counts runs" if header else ""
    return Table(heading, shared_conditions(group) + counted, header, rows, [*own_notes(group), *notes])


# -- a number a record -------------------------------------------------------------------------------------------------
def records(results: Sequence[Result], paper: str | None = None, across: Sequence[str] = ()) -> list[dict[str, Any]]:
    """A record for every metric of every group of runs, and for every number that a paper gives for one of them.

    The arguments are as for :func:`tables_of`.

    Returns:
        Numbers in the ``unit`` of ``metrics.json``, fractions in 0..1, None where there are none: ``mean`` over folds
        of the means over seeds; ``sd``, over what ``sd_over`` says, "folds" or, of a single fold, "seeds" (a paper's
        own ``sd`` does not say); ``sd_within_folds``, over the seeds of a fold, pooled, where there are several folds;
        ``n`` runs with a value, in ``n_folds``; the 95 % interval ``low``, ``high`` of a single run.
    """
    numbers, rows = published(paper) if paper is not None else [], list[dict[str, Any]]()
    for group in groups_of(results, across):
        runs = [
            {"name": name, "fold": result.fold, "train_seed": result.train_seed, "seed": result.seed}
            | {"read_from": read_from(result), "not_read": passed_over(result)}
            for name, result in zip(group.names, group.results, strict=True)
        ]
        rows += [_record(group, key) | {"runs": runs} for key in group.keys]
        for column in columns([match for match in matches(group.first, numbers) if match.key in group.keys]):
            rows += [_quoted_record(column.title, group, match) for each in column.cells.values() for match in each]
    return [record for index, record in enumerate(rows) if record not in rows[:index]]


def _record(group: Group, key: str) -> dict[str, Any]:
    cell, first = measured(group, key), group.first_entry(key)
    several = "folds" if group.has_folds else "seeds"
    return {
        "name": group.name,
        "model": group.first.model,
        "dataset": group.first.dataset,
        "split": group.first.split,
        "metric": key,
        "unit": first.unit if first else None,
        "higher_is_better": first.higher_is_better if first else None,
        "mean": cell.value,
        "sd": cell.sd,
        "sd_over": several if group.total > 1 else None,
        "sd_within_folds": cell.spreads[1] if len(cell.spreads) > 1 else None,
        "n": cell.n,
        "n_folds": group.average(key).folds if group.first.fold is not None else None,
        "low": cell.low,
        "high": cell.high,
        "note": "; ".join(group.notes(key)),
    }


def _quoted_record(title: str, group: Group, match: Match) -> dict[str, Any]:
    """What a paper gives for a metric of a group, with the entries of :func:`_record` that it knows."""
    number, ours, cell = match.record, _record(group, match.key), quoted(match.record)
    notes = [*cell.marks, *(f"† {difference}" for difference in match.differences)]
    notes += [f"{name}={value}" for name, value in number.key_qualifiers.items()]
    known: dict[str, Any] = {"name": title, "model": number.model, "dataset": number.dataset, "runs": []}
    known |= {"mean": cell.value, "sd": cell.sd, "n": cell.n}
    known |= {"note": "; ".join([*notes, *filter(None, [number.remark])])}
    known |= {name: ours[name] for name in ("metric", "unit", "higher_is_better")}
    return dict.fromkeys(ours) | known
