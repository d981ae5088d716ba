"""The rows of a paper's table: what it printed, and below each model the runs that come nearest to it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from protometry.command_line.messages import did_you_mean
from protometry.metrics.suite import ENTRIES
from protometry.reports.published.columns import Match, matches, names_of, own_words
from protometry.reports.published.numbers import Published
from protometry.reports.published.paper_tables import Column, PaperTable
from protometry.reports.results.metrics_json import Result
from protometry.reports.results.values_csv import NAMED_BY, read_values
from protometry.reports.tables.groups import Average, Group, average

NOT_MEASURED = "not measured"
_ITEMS = {"concept": ("concepts", 112), "class": ("classes", 200)}  # file of their values, and how many a paper counts


@dataclass(frozen=True)
class Cell:
    """A number of a table.

    Args:
        value: None where there is none.
        sd: over runs, or the paper's own; None where not known.
        low: lower bound of the 95 % interval of a single run, or None.
        high: upper bound, or None.
        n: runs with a value, the paper's folds, seeds or participants, or None.
        key: of our result.
        match: the published number, or the one ours may be compared with and how it differs.
        reason: why there is no value.
        marks: codes of a published value, or † where ours is measured differently.
    """

    value: float | None
    sd: float | None
    low: float | None
    high: float | None
    n: int | None
    key: str
    match: Match
    reason: str = ""
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Args:
        dataset: None for a study with people, which does not record it.
        model: as it is printed.
        nearest: the published model that it belongs to, with qualifiers; empty if there is none.
        words: of the row, where a model has several.
        source: ``"published"``, or the names of the runs.
        is_published: whether it is the paper's.
        cells: by heading; a paper leaves some empty.
    """

    dataset: str | None
    model: str
    nearest: str
    words: str
    source: str
    is_published: bool
    cells: dict[str, Cell]


Section = tuple[str, list[Row]]  # data set, and its rows


def published_rows(table: PaperTable) -> list[Row]:
    """What the paper printed, by data set, model and row."""
    records, rows = table.records, []
    for dataset, model in dict.fromkeys((record.dataset, record.model) for record in records):
        models = list(dict.fromkeys(record.model for record in records if record.dataset == dataset))
        label = ", ".join([model.split("[")[0], *own_words(model, models)])
        for words, ending in table.rows.items():
            here = {r.metric_key: r for r in records if (r.dataset, r.model) == (dataset, model)}
            numbers = {column.heading: here.get(column.key + ending) for column in table.columns}
            cells = {heading: _quoted(record) for heading, record in numbers.items() if record is not None}
            if cells:
                rows.append(Row(dataset, label, model, words, "published", True, cells))
    return rows


def _quoted(record: Published) -> Cell:
    match, marks = Match(record, record.base_key, (), ()), (*record.codes, *([] if record.verified else ["unverified"]))
    return Cell(record.value, record.std, None, None, record.n_runs, record.base_key, match, "", marks)


def own_rows(table: PaperTable, group: Group) -> list[Row]:
    """The same of runs that are averaged.

    Args:
        table: of a paper.
        group: of runs.

    Returns:
        A row for each row of the table, below the published model that differs from the runs in fewest conditions.
    """
    first, records = group.first, table.records
    near: dict[str, list[int]] = {}
    for match in matches(first, records):
        near.setdefault(match.record.model, []).append(len(match.differences))
    nearest = min(near, key=lambda model: min(near[model]), default="")
    label = ", ".join([first.model, *group.words])
    rows = []
    for words, ending in table.rows.items():
        cells = {each.heading: _cell(table, group, nearest, each.key + ending) for each in table.columns}
        rows.append(Row(first.dataset, label, nearest, words, group.name, False, cells))
    return rows


def of_keys(keys: Sequence[str], results: Sequence[Result]) -> PaperTable:
    """A table of any metrics of runs, without published numbers.

    Args:
        keys: of the metrics.
        results: of the runs.

    Raises:
        ValueError: if there is no key, or no run has one.
    """
    known = {key: entry for result in reversed(results) for key, entry in result.metrics.items()}
    if not keys:
        raise ValueError("Expected argument `metric` to name metrics, or `published` a table, but got neither.")
    for key in keys:
        if key not in known:
            raise ValueError(
                f"Expected argument `metric` to name metrics of these runs, but got {key!r}." + did_you_mean(key, known)
            )
    columns = [Column(key, key, known[key].unit, known[key].higher_is_better) for key in keys]
    return PaperTable("these metrics", "", [], [], columns)


def _cell(table: PaperTable, group: Group, nearest: str, key: str) -> Cell:
    """The value under one of the keys that are comparable with a published number, the most comparable of them."""
    first = group.first
    empty = Published(table.name, "", first.dataset, nearest or names_of(first)[0], key, math.nan, None, None, "", True)
    place = (first.dataset, nearest, key)
    record = next((r for r in table.records if (r.dataset, r.model, r.metric_key) == place), empty)
    match = min(matches(first, [record]), key=lambda each: (not group.entries(each.key), len(each.differences)))
    match = match if table.records else replace(match, differences=())  # no paper to differ from
    if axis := next((axis for axis in _ITEMS if record.key_qualifiers.get(axis, "").isdigit()), None):
        return _of_item(group, match, axis)
    entries, mean = group.entries(match.key), group.average(match.key)
    if not entries:
        reasons = dict.fromkeys(result.skipped[match.key] for result in group.results if match.key in result.skipped)
        return without_value(match, "; ".join(reasons) or NOT_MEASURED)
    only = next((entry for entry in entries if entry.value is not None), None) if mean.runs == 1 else None
    return _own(group, mean, match, (only.low, only.high) if only else (None, None))


def without_value(match: Match, reason: str) -> Cell:
    """A cell that says why it has no value."""
    return Cell(None, None, None, None, 0, match.key, match, reason)


def _own(group: Group, mean: Average, match: Match, ends: tuple[float | None, float | None] = (None, None)) -> Cell:
    if mean.mean is None:
        return without_value(match, "undefined")
    sd = mean.sd_folds if group.has_folds else mean.sd_seeds
    return Cell(mean.mean, sd, *ends, mean.runs, match.key, match, "", ("†",) if match.differences else ())


def _of_item(group: Group, match: Match, axis: str) -> Cell:
    """The value of one concept or class, which the paper counts from 1 and evaluations write into a file."""
    (file, count), index = _ITEMS[axis], int(match.record.key_qualifiers[axis])
    match = replace(match, differences=tuple(each for each in match.differences if not each.startswith(f"{axis}=")))
    values: dict[int | None, list[float]] = {}
    for result in group.results:
        item_values = _item_values(result, file, match.key)
        if isinstance(item_values, str):
            return without_value(match, item_values)
        if len(item_values) != count:
            return without_value(match, f"the paper counts {count} {file}, these data have {len(item_values)}")
        values.setdefault(result.fold, []).extend(
            [] if math.isnan(item_values[index - 1]) else [item_values[index - 1]]
        )
    return _own(group, average([values[fold] for fold in group.folds]), match)


def _item_values(result: Result, file: str, key: str) -> list[float] | str:
    """The values of all concepts or classes, or why there are none."""
    if key not in result.metrics:
        return result.skipped.get(key, NOT_MEASURED)
    path = result.path.with_name(f"{file}.csv")
    table = read_values(path) if path.is_file() else None
    if table is None or key not in table.keys:
        return f"{NOT_MEASURED} by {NAMED_BY[file]}"
    values: list[float] = table.values[:, table.keys.index(key)].tolist()
    return values


def sections(table: PaperTable, own: Sequence[Row]) -> list[Section]:
    """The rows of a table by data set, with runs below the published model that they belong to.

    Args:
        table: of a paper.
        own: rows of runs.

    Raises:
        ValueError: if no run has a metric of the table.
    """
    if not any(cell.reason != NOT_MEASURED for row in own for cell in row.cells.values()):
        keys = list(dict.fromkeys(cell.key for row in own for cell in row.cells.values()))
        listed = ", ".join(keys[:3]) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")
        full = any(key in ENTRIES and ENTRIES[key].full for key in keys)
        suites = ",".join(dict.fromkeys(key.split("/")[0] + "_full" * full for key in keys))
        mend = f"Evaluate them with `--suite {suites}`."
        if suites == "study":
            mend = "Pass the folder of a study that `python -m studies analyse` has analysed."
        raise ValueError(f"Expected `runs` to have results of {table.name}, but none has any of {listed}. {mend}")
    quoted = published_rows(table)
    datasets = dict.fromkeys([*(row.dataset for row in quoted), *(row.dataset for row in own if row.dataset)])
    return [(dataset, list(_in_order(dataset, quoted, own))) for dataset in datasets if dataset]


def _in_order(dataset: str, quoted: Sequence[Row], own: Sequence[Row]) -> Iterator[Row]:
    here = [row for row in own if row.dataset in (dataset, None)]
    above = [row for row in quoted if row.dataset == dataset]
    for row in above:
        yield row
        yield from (each for each in here if (each.nearest, each.words) == (row.nearest, row.words))
    placed = {(row.nearest, row.words) for row in above}
    yield from (row for row in here if row.dataset and (row.nearest, row.words) not in placed)


def places(rows: Sequence[Row], column: Column, printed: Sequence[str]) -> list[int | None]:
    """How many rows are better, among rows with the same words that are all published or all of runs.

    Args:
        rows: of one data set.
        column: whose direction counts.
        printed: their values as they are read, so that what looks equal is equal; empty where there is none.

    Returns:
        0 for the best and, of three or more, 1 for the second best, equal values alike; None for the others, where all
        are equal, and where no direction is good.
    """
    ranks: list[int | None] = [None] * len(rows)
    for index, row in enumerate(rows):
        rivals = [
            float(text) * (1 if column.higher_is_better else -1)
            for other, text in zip(rows, printed, strict=True)
            if text and (other.is_published, other.words) == (row.is_published, row.words)
        ]
        if not printed[index] or column.higher_is_better is None or len(set(rivals)) < 2:
            continue
        own = float(printed[index]) * (1 if column.higher_is_better else -1)
        better = sum(other > own for other in rivals)
        ranks[index] = better if better < min(2, len(rivals) - 1) else None
    return ranks
