"""The cells of tables, of runs and of papers: a mean with its spread or interval, and how it is printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from protometry.evaluation.published.columns import Match
from protometry.evaluation.published.numbers import Published
from protometry.evaluation.tables.groups import Average, Group
from protometry.evaluation.tables.markdown import UNDEFINED, interval, number, with_spreads

NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Cell:
    """A number of a table.

    Args:
        value: None where there is none.
        spreads: standard deviations over folds and over seeds, as far as the runs have several, or the paper's own;
            None where too few runs have a value.
        n: runs with a value, the paper's folds, seeds or participants, or None.
        reason: why there is no value.
        marks: codes of a published value, or † where ours is measured differently.
        match: the published number, or the one ours may be compared with and how it differs.
    """

    key: str
    value: float | None = None
    spreads: Sequence[float | None] = ()
    low: float | None = None
    high: float | None = None
    n: int | None = 0
    reason: str = ""
    marks: tuple[str, ...] = ()
    match: Match | None = None

    @property
    def sd(self) -> float | None:
        """The first spread: over folds, or over the seeds of one."""
        return self.spreads[0] if self.spreads else None


def measured(group: Group, key: str) -> Cell:
    """What the runs of a group say of a metric."""
    entries, average = group.entries(key), group.average(key)
    if not entries:
        return Cell(key, reason="; ".join(group.reasons(key)) or NOT_MEASURED)
    if average.runs == 1:
        (only,) = [entry for entry in entries if entry.value is not None]
        return averaged(group, key, average, only.low, only.high)
    return averaged(group, key, average)


def averaged(group: Group, key: str, average: Average, low: float | None = None, high: float | None = None) -> Cell:
    """An average over the runs of a group, with the interval if it is of one run."""
    spreads = [average.sd_folds] * group.has_folds + [average.sd_seeds] * group.has_seeds
    return Cell(
        key,
        value=average.mean,
        spreads=spreads if average.runs > 1 else (),
        low=low,
        high=high,
        n=average.runs,
        reason=UNDEFINED if average.mean is None else "",
    )


def quoted(record: Published) -> Cell:
    """What a paper printed."""
    return Cell(
        record.base_key,
        value=record.value,
        spreads=() if record.std is None else (record.std,),
        n=record.n_runs,
        marks=(*record.codes, *(() if record.verified else ("unverified",))),
        match=Match(record, record.base_key, (), ()),
    )


def printed(cell: Cell, unit: str) -> str:
    """A mean ± its spreads or with its interval, or why there is none in a word."""
    if cell.value is None:
        return UNDEFINED if cell.reason == UNDEFINED else "n/a"
    if cell.spreads:
        return with_spreads(cell.value, cell.spreads, unit)
    return f"{number(cell.value, unit)} {interval(cell.low, cell.high, unit)}".rstrip()


def in_brackets(marks: Sequence[str]) -> str:
    """Marks as they follow a number or a name."""
    return f" ({' '.join(marks)})" if marks else ""
