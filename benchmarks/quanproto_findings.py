"""Which findings of Schlinge et al. 2025 hold: ``python benchmarks/quanproto_findings.py runs/quanproto [--write]``.

Reads the table of findings in ``docs/results/quanproto.md``, which says what each compares, and prints it with the last
two columns as the runs of ``configs/sweep/quanproto.yaml`` give them. A difference is paired over the images both share
where the metric is a mean over images; else its interval comes from the intervals of both numbers (Zou and Donner
2008), and a number of the model has none. A comparison is met if its interval lies where the finding predicts in every
fold, and missed if it lies elsewhere in every fold. A finding holds if all its comparisons are met, does not hold if
one is missed, and is open otherwise, also where a run or number is missing.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from protometry.reports.results.metrics_json import Result
from protometry.reports.results.runs import evaluations
from protometry.reports.results.values_csv import read_values
from protometry.reports.tables.paired_statistics import paired

PAGE = Path(__file__).resolve().parents[1] / "docs/results/quanproto.md"
DATA = ("cub", "cars", "nico", "awa2")
COLUMNS = 9  # section, finding, data, metrics, first, second, difference, verdict, decided by


class Interval(NamedTuple):
    """A number or difference with its 95 % interval, which has no width for a number of the model."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Side:
    """One number of the runs with a model."""

    model: str
    data: str
    key: str
    split: str = "test"
    explainer: str | None = None

    def number(self, runs: Path, fold: int) -> tuple[Result, Interval] | None:
        """Its evaluation and value in a fold, or None where they are not there."""
        for result in evaluations(runs / f"{self.model}-{self.data}-fold{fold}"):
            asked = result.explainer if result.protocol.get("asked_explainer") else None
            metric = result.metrics.get(self.key)
            if metric and metric.value is not None and (result.split, asked) == (self.split, self.explainer):
                low, high = (metric.value if bound is None else bound for bound in (metric.low, metric.high))
                return result, Interval(metric.value, low, high)
        return None


@dataclass(frozen=True)
class Comparison:
    """A difference in every fold, and the bounds between which a finding has it."""

    where: str
    folds: Sequence[Interval | None]
    bounds: tuple[float, float]

    @property
    def verdict(self) -> str:
        """Met, missed or open.

        Example:
            >>> Comparison("", [Interval(2.0, 1.0, 3.0), Interval(1.0, -1.0, 3.0)], (0.0, math.inf)).verdict
            'open'
        """
        low, high = self.bounds
        there = [each for each in self.folds if each]
        if len(there) < len(self.folds):
            return "open"
        if all(each == (low, low, high) if low == high else low < each.low and each.high < high for each in there):
            return "met"
        return "missed" if all(each.high <= low or each.low >= high for each in there) else "open"

    def __str__(self) -> str:
        there = [each for each in self.folds if each]
        if len(there) < len(self.folds):
            return f"{self.where}: not there"
        mean, low = sum(each.value for each in there) / len(there), min(each.low for each in there)
        return f"{self.where}: {mean:+.3g} [{low:.3g}, {max(each.high for each in there):.3g}]"


def verdict(compared: Sequence[Comparison]) -> str:
    """Of a finding.

    Example:
        >>> met, missed = (Comparison("", [Interval(d, d, d)], (0.0, math.inf)) for d in (1.0, -1.0))
        >>> verdict([met, met]), verdict([met, missed]), verdict([met, Comparison("", [None], (0.0, math.inf))])
        ('holds', 'does not hold', 'open')
    """
    verdicts = {each.verdict for each in compared}
    return "holds" if verdicts == {"met"} else "does not hold" if "missed" in verdicts else "open"


def comparisons(row: Sequence[str], runs: Path, folds: Sequence[int]) -> Iterator[Comparison]:
    """Everything that a row of the table compares: all data, metrics and pairs of sides."""
    data, keys, firsts, seconds = (cell.replace("`", "").split(", ") for cell in row[2:6])
    for name, key, model, other in product(DATA if data == ["all"] else data, keys, firsts, seconds):
        first = Side(model, name, key)
        second = _second(other, first)
        where = f"{name}, {key}, {model} − {other}"
        yield Comparison(where, [difference(first, second, runs, fold) for fold in folds], bounds(row[6]))


def bounds(text: str) -> tuple[float, float]:
    """Between which numbers a difference lies.

    Example:
        >>> bounds("> −0.05"), bounds("< 0"), bounds("± 0.1"), bounds("= 0")
        ((-0.05, inf), (-inf, 0.0), (-0.1, 0.1), (0.0, 0.0))
    """
    sign, number = text[0], float(text[2:].replace("−", "-"))
    return {">": (number, math.inf), "<": (-math.inf, number), "±": (-number, number), "=": (number, number)}[sign]


def _second(text: str, first: Side) -> Side | float:
    """A number, a model, or the first side with another metric, split, data set or explainer ("its val")."""
    if not text.startswith("its "):
        return float(text) if text[0].isdigit() else replace(first, model=text)
    other = text.removeprefix("its ")
    field = "key" if "/" in other else "split" if other == "val" else "data" if other in DATA else "explainer"
    return replace(first, **{field: other})


def difference(first: Side, second: Side | float, runs: Path, fold: int) -> Interval | None:
    """First less second, or None where one of them is not there."""
    sides = (first, second) if isinstance(second, Side) else (first,)
    numbers = [side.number(runs, fold) for side in sides]
    if None in numbers:
        return None
    (one, (a, low_a, high_a)), *others = (each for each in numbers if each)
    if not isinstance(second, Side):
        return Interval(a - second, low_a - second, high_a - second)
    ((other, (b, low_b, high_b)),) = others
    if in_pairs := _in_pairs((other, second.key), (one, first.key)):
        return in_pairs
    return Interval(a - b, a - b - math.hypot(a - low_a, high_b - b), a - b + math.hypot(high_a - a, b - low_b))


def _in_pairs(*sides: tuple[Result, str]) -> Interval | None:
    """The second side less the first on the images both share; None if there are none or it is no mean over images."""
    values = [read_values(result.path.with_name("images.csv")) for result, _ in sides]
    shared = sorted(set(values[0].sample_ids) & set(values[1].sample_ids))
    keys = [key for _, key in sides]
    if not shared or any(key not in each.keys for key, each in zip(keys, values, strict=True)):
        return None
    columns = [v.values[:, [v.keys.index(key)]] for key, v in zip(keys, values, strict=True)]
    one, other = (replace(v, keys=["metric"], values=column) for v, column in zip(values, columns, strict=True))
    (row,) = paired(one, other, shared, draws=1)
    unknown = math.isnan(row.low)  # all images differ alike, which says nothing of others
    return Interval(row.difference, *((-math.inf, math.inf) if unknown else (row.low, row.high)))


def filled(line: str, runs: Path, folds: Sequence[int]) -> str:
    """A line of the page; a finding with its verdict and the comparison that decides it."""
    cells = [cell.strip() for cell in line.strip("|").split(" | ")]
    if not line.startswith("| ") or len(cells) != COLUMNS or cells[0] == "§":
        return line
    compared = list(comparisons(cells, runs, folds))
    counts = {name: sum(each.verdict == name for each in compared) for name in ("missed", "open", "met")}
    decides = next(each for name in counts for each in compared if each.verdict == name)
    written = f"{verdict(compared)} ({counts['met']} of {len(compared)} met, {counts['missed']} missed)"
    return f"| {' | '.join([*cells[:7], written, str(decides)])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="folder of the runs of the sweep")
    parser.add_argument("--folds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--write", action="store_true", help="fill the page instead of printing")
    arguments = parser.parse_args()
    lines = PAGE.read_text("utf-8").splitlines()
    written = [filled(line, arguments.runs, arguments.folds) for line in lines]
    if arguments.write:
        PAGE.write_text("\n".join([*written, ""]), "utf-8")
    else:
        print("\n".join(line for line in written if line.startswith("| ") and line.count(" | ") == COLUMNS - 1))


if __name__ == "__main__":
    main()
