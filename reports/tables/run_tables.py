"""Tables of many runs: means and spreads over folds and seeds, next to what a paper published."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from protometry.metrics.page import arrow
from protometry.reports.markdown import UNDEFINED, interval, lines, number, printed_unit
from protometry.reports.published.columns import PublishedColumn, cell, columns, footnotes, matches
from protometry.reports.published.numbers import Published, published
from protometry.reports.results.differences import listed_differences
from protometry.reports.results.metrics_json import Result
from protometry.reports.tables.group_notes import own_notes, shared_conditions
from protometry.reports.tables.groups import Group, groups_of, keys_of

# by whether a group has folds and seeds
SPREADS = {
    (False, False): "value [95 %]",
    (False, True): "mean ± std over seeds",
    (True, False): "mean ± std over folds",
    (True, True): "mean ± std over folds ± over seeds",
}


@dataclass(frozen=True)
class Part:
    """A part of what is printed, without what is empty.

    Args:
        heading: of one line.
        text: paragraphs.
        header: of the table.
        rows: of the table; its first two columns are text.
        notes: below it.
        best: row and column of cells that stand out: 0 for the best of a column, 1 for the second best.
    """

    heading: str = ""
    text: str = ""
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = ()
    best: Mapping[tuple[int, int], int] = field(default_factory=dict)

    def emphasised(self, best: str, second: str, escape: Callable[[str], str] = str) -> list[list[str]]:
        """The rows, escaped, with what stands out in a pattern, such as ``"**{}**"``."""
        patterns = {0: best, 1: second, None: "{}"}
        return [
            [patterns[self.best.get((at, column))].format(escape(cell)) for column, cell in enumerate(row)]
            for at, row in enumerate(self.rows)
        ]


def markdown(results: Sequence[Result], paper: str | None = None, across: Sequence[str] = ()) -> str:
    """The table as GitHub-flavoured Markdown, of the parts of :func:`parts_of`."""
    return as_markdown(parts_of(results, paper, across))


def as_markdown(parts: Sequence[Part]) -> str:
    """Parts as GitHub-flavoured Markdown."""
    blocks = []
    for part in parts:
        blocks += [f"### {part.heading}"] if part.heading else []
        table = lines(part.header, part.emphasised("**{}**", "*{}*"), left=2) if part.header else []
        blocks += [part.text, "\n".join(table)]
        blocks.append("\n".join(f"- {note}" for note in part.notes))
    return "\n\n".join(text for text in blocks if text)


def parts_of(results: Sequence[Result], paper: str | None = None, across: Sequence[str] = ()) -> list[Part]:
    """Groups of comparable runs: several side by side in one table, or each in a table next to a paper's numbers.

    Runs are averaged only if they share data set, model, split, variant, explainer, protocol and everything about their
    training but fold and seed; what distinguishes groups is named. Means and spreads come from
    :func:`~protometry.reports.tables.groups.average`; one run shows its own 95 % interval. A metric that is not
    applicable prints ``n/a`` with its reason below, one that was not measured a dash; an undefined value never counts
    as a number.

    Args:
        results: evaluations.
        paper: short name of a paper, or None.
        across: conditions in which averaged runs may differ.

    Raises:
        ValueError: if the paper or a condition is unknown, or a run gives the same metric twice under the same
            conditions.
    """
    records = published(paper) if paper is not None else []
    groups = groups_of(results, across)
    apart = listed_differences([group.first for group in groups]) if len(groups) > 1 else []
    numbered = " (numbers refer to the columns)" if len(groups) > 2 else ""
    apart_note = Part(text=f"Not averaged, because they differ in{numbered}:", notes=apart) if apart else Part()
    if len(groups) > 1 and paper is None:
        return [_side_by_side(groups), apart_note, *(_conditions(group, group.title) for group in groups)]
    return [apart_note, *(_section(group, records, group.title if apart else group.first.model) for group in groups)]


def _section(group: Group, records: Sequence[Published], title: str) -> Part:
    matched = [match for match in matches(group.first, records) if match.key in group.keys]
    published_columns = columns(matched)
    header = [
        "metric",
        "unit",
        SPREADS[group.has_folds, group.has_seeds],
        "n",
        *(each.title for each in published_columns),
    ]
    rows = [_row(key, group, published_columns) for key in group.keys]
    notes = footnotes(published_columns)
    if records and not matched:
        first = group.first
        notes.append(f"{records[0].paper} gives nothing for {first.model} on {first.dataset} in these metrics")
    return _conditions(group, title, header, rows, notes)


def _side_by_side(groups: Sequence[Group]) -> Part:
    """One column per group."""
    rows = []
    for key in keys_of([result for group in groups for result in group.results]):
        first = next((entry for group in groups for entry in group.entries(key)), None)
        name = f"{key} {arrow(first.higher_is_better) if first else ''}".rstrip()
        rows.append([name, printed_unit(first.unit) if first else "", *(_cell(key, group) for group in groups)])
    return Part(header=["metric", "unit", *(group.title for group in groups)], rows=rows)


def _cell(key: str, group: Group) -> str:
    runs = group.average(key).runs
    partial = f" ({runs}/{group.total})" if 0 < runs < group.total else ""
    return _ours(key, group) + partial


def _row(key: str, group: Group, published_columns: Sequence[PublishedColumn]) -> list[str]:
    entries, average = group.entries(key), group.average(key)
    unit = entries[0].unit if entries else ""
    direction = arrow(entries[0].higher_is_better) if entries else ""
    count = str(group.total) if average.runs == group.total else f"{average.runs}/{group.total}"
    if group.has_folds and group.has_seeds:
        count = f"{average.folds} fold{'s' * (average.folds != 1)}, {count} runs"
    others = [cell(column.cells[key], unit) if key in column.cells else "" for column in published_columns]
    return [f"{key} {direction}".rstrip(), printed_unit(unit), _ours(key, group), count, *others]


def _ours(key: str, group: Group) -> str:
    """The mean with the spreads that the group has, or the interval of a single run."""
    entries, average = group.entries(key), group.average(key)
    if not entries:
        return "n/a" if any(key in result.skipped for result in group.results) else "–"
    if average.mean is None:
        return UNDEFINED
    unit = entries[0].unit
    if average.runs == 1:
        (only,) = [entry for entry in entries if entry.value is not None]
        return f"{number(average.mean, unit)} {interval(only.low, only.high, unit)}".rstrip()
    spreads = [average.sd_folds] * group.has_folds + [average.sd_seeds] * group.has_seeds
    return " ± ".join([number(average.mean, unit), *("–" if sd is None else number(sd, unit) for sd in spreads)])


def _conditions(
    group: Group, title: str, header: Sequence[str] = (), rows: Sequence[Sequence[str]] = (), notes: Sequence[str] = ()
) -> Part:
    """Heading, conditions, perhaps a table, and notes."""
    marks = f", {group.first.incomplete_training}" if group.first.incomplete_training else ""
    if other := group.first.other_data:
        marks += f", other data than trained on ({other['config']}, {other['matched']} of {other['classes']} classes)"
    runs = f"{group.total} runs" if group.total > 1 else "1 run"
    heading = f"{title} on {group.first.dataset}, {group.first.split} split, {runs}{marks}"
    counted = "; n counts runs" if header else ""
    return Part(heading, shared_conditions(group) + counted, header, rows, [*own_notes(group), *notes])
