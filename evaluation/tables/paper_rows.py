"""The rows of a paper's table: what it printed, and below each model the runs that come nearest to it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from protometry.evaluation.published.columns import Match, matches, names_of, own_words
from protometry.evaluation.published.numbers import Published
from protometry.evaluation.published.paper_tables import Column, PaperTable
from protometry.evaluation.results.metrics_json import Result
from protometry.evaluation.results.runs import collect
from protometry.evaluation.results.values_csv import NAMED_BY, read_values
from protometry.evaluation.tables.groups import Group, average, groups_of
from protometry.evaluation.tables.markdown import number
from protometry.evaluation.tables.records import NOT_MEASURED, Cell, averaged, measured, quoted
from protometry.metrics.suite import ENTRIES
from protometry.run_folder.command_line.messages import did_you_mean

STUDIES = "protometry.studies.analysis.hive"  # has the rows of studies; imported where one is named
STUDY_FILES = ("study.json", "summary.json")  # of a study, or of an analysis of it
_ITEMS = {"concept": ("concepts", 112), "class": ("classes", 200)}  # file of their values, and how many a paper counts


@dataclass(frozen=True)
class PaperRow:
    """A row of a table.

    Args:
        dataset: None for a study with people, which does not record it.
        nearest: the published model that it belongs to, with qualifiers; empty if there is none.
        words: of the row, where a model has several.
        source: ``"published"``, or the names of the runs.
        cells: by heading; a paper leaves some empty.
        is_published: whether it is the paper's.
    """

    dataset: str | None
    model: str
    nearest: str
    words: str
    source: str
    cells: dict[str, Cell]
    is_published: bool = False


Section = tuple[str, list[PaperRow]]  # data set, and its rows


def published_rows(table: PaperTable) -> list[PaperRow]:
    """What the paper printed, by data set, model and row."""
    records, rows = table.records, []
    for dataset, model in dict.fromkeys((record.dataset, record.model) for record in records):
        models = list(dict.fromkeys(record.model for record in records if record.dataset == dataset))
        label = ", ".join([model.split("[")[0], *own_words(model, models)])
        for words, ending in table.rows.items():
            here = {r.metric_key: r for r in records if (r.dataset, r.model) == (dataset, model)}
            numbers = {column.heading: here.get(column.key + ending) for column in table.columns}
            cells = {heading: quoted(record) for heading, record in numbers.items() if record is not None}
            if cells:
                rows.append(
                    PaperRow(
                        dataset=dataset,
                        model=label,
                        nearest=model,
                        words=words,
                        source="published",
                        is_published=True,
                        cells=cells,
                    )
                )
    return rows


def own_rows(table: PaperTable, group: Group) -> list[PaperRow]:
    """The same of runs that are averaged.

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
        rows.append(
            PaperRow(dataset=first.dataset, model=label, nearest=nearest, words=words, source=group.name, cells=cells)
        )
    return rows


def of_keys(keys: Sequence[str], results: Sequence[Result]) -> PaperTable:
    """A table of any metrics of runs, without published numbers.

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
    record = next(
        (r for r in table.records if (r.dataset, r.model, r.metric_key) == (first.dataset, nearest, key)), empty
    )
    match = min(matches(first, [record]), key=lambda each: (not group.entries(each.key), len(each.differences)))
    match = match if table.records else replace(match, differences=())  # no paper to differ from
    if axis := next((axis for axis in _ITEMS if record.key_qualifiers.get(axis, "").isdigit()), None):
        return _of_item(group, match, axis)
    return _marked(measured(group, match.key), match)


def _marked(cell: Cell, match: Match) -> Cell:
    """A cell of runs, without a second spread, and with a mark if it is not measured as the paper does."""
    spreads = [sd for sd in cell.spreads[:1] if sd is not None]
    marks = ("†",) if match.differences and cell.value is not None else ()
    return replace(cell, spreads=spreads, marks=marks, match=match)


def _of_item(group: Group, match: Match, axis: str) -> Cell:
    """The value of one concept or class, which the paper counts from 1 and evaluations write into a file."""
    (file, count), index = _ITEMS[axis], int(match.record.key_qualifiers[axis])
    match = replace(match, differences=tuple(each for each in match.differences if not each.startswith(f"{axis}=")))
    values: dict[int | None, list[float]] = {}
    for result in group.results:
        item_values = _item_values(result, file, match.key)
        if isinstance(item_values, str):
            return Cell(match.key, reason=item_values, match=match)
        if len(item_values) != count:
            reason = f"the paper counts {count} {file}, these data have {len(item_values)}"
            return Cell(match.key, reason=reason, match=match)
        of_fold = values.setdefault(result.fold, [])
        if not math.isnan(value := item_values[index - 1]):
            of_fold.append(value)
    return _marked(averaged(group, match.key, average([values[fold] for fold in group.folds])), match)


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


def sections_of(table: PaperTable, paths: Sequence[str | Path], across: Sequence[str] = ()) -> list[Section]:
    """The rows of a table by data set, with runs below the published model that they belong to.

    Raises:
        ValueError: if a study or a run cannot be read, or none has results of the table.
    """
    studies = [Path(path) for path in paths if any((Path(path) / name).is_file() for name in STUDY_FILES)]
    runs = [path for path in paths if Path(path) not in studies]
    own = [row for study in studies for row in import_module(STUDIES).rows_of(study, table)]
    for group in groups_of(collect(runs), across, by_dataset=True) if runs else []:
        own += own_rows(table, group)
    return _by_dataset(table, own)


def _by_dataset(table: PaperTable, own: Sequence[PaperRow]) -> list[Section]:
    if not any(cell.reason != NOT_MEASURED for row in own for cell in row.cells.values()):
        keys = list(dict.fromkeys(cell.key for row in own for cell in row.cells.values()))
        listed = ", ".join(keys[:3]) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")
        full = any(key in ENTRIES and ENTRIES[key].full for key in keys)
        suites = ",".join(dict.fromkeys(key.split("/")[0] + "_full" * full for key in keys))
        mend = f"Evaluate them with `--suite {suites}`."
        if suites == "study":
            mend = "Pass the folder of a study that `protometry studies analyse` has analysed."
        raise ValueError(f"Expected `runs` to have results of {table.name}, but none has any of {listed}. {mend}")
    quoted = published_rows(table)
    datasets = dict.fromkeys([*(row.dataset for row in quoted), *(row.dataset for row in own if row.dataset)])
    return [(dataset, list(_in_order(dataset, quoted, own))) for dataset in datasets if dataset]


def _in_order(dataset: str, quoted: Sequence[PaperRow], own: Sequence[PaperRow]) -> Iterator[PaperRow]:
    here = [row for row in own if row.dataset in (dataset, None)]
    above = [row for row in quoted if row.dataset == dataset]
    for row in above:
        yield row
        yield from (each for each in here if (each.nearest, each.words) == (row.nearest, row.words))
    placed = {(row.nearest, row.words) for row in above}
    yield from (row for row in here if row.dataset and (row.nearest, row.words) not in placed)


def ranks(table: PaperTable, rows: Sequence[PaperRow]) -> dict[tuple[int, str], int]:
    """How many rows are better, among rows with the same words that are all published or all of runs.

    Values are compared as :func:`.number` prints them, so that what looks equal is equal.

    Returns:
        By row and heading, 0 for the best and, of three or more, 1 for the second best, equal values alike; nothing for
        the others, where all are equal, and where no direction is good.
    """
    ranked: dict[tuple[int, str], int] = {}
    for column in (column for column in table.columns if column.higher_is_better is not None):
        sign = 1 if column.higher_is_better else -1
        groups: dict[tuple[bool, str], dict[int, float]] = {}
        for index, row in enumerate(rows):
            cell = row.cells.get(column.heading)
            if cell is not None and cell.value is not None:
                rivals = groups.setdefault((row.is_published, row.words), {})
                rivals[index] = sign * float(number(cell.value, column.unit))
        for rivals in groups.values():
            for index, value in rivals.items():
                better = sum(other > value for other in rivals.values())
                if len(set(rivals.values())) > 1 and better < min(2, len(rivals) - 1):
                    ranked[index, column.heading] = better
    return ranked
