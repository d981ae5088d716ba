"""Groups of runs that are averaged, the same but for fold and seed, and their means with both spreads."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from protometry.evaluation.results.differences import paths, short_name, without, words_apart
from protometry.evaluation.results.metrics_json import Result, lacking
from protometry.evaluation.results.schema import Entry
from protometry.evaluation.tables.names import group_name, run_names
from protometry.run_folder.command_line.messages import did_you_mean


@dataclass(frozen=True)
class Average:
    """A metric over runs.

    Args:
        mean: over folds of the means over their runs; None without a value.
        sd_folds: sample standard deviation of the means of folds; None for fewer than two folds.
        sd_seeds: standard deviation of the runs of a fold, pooled over folds; None if no fold has two runs.
    """

    mean: float | None
    sd_folds: float | None
    sd_seeds: float | None
    folds: int
    runs: int


def average(folds: Sequence[Sequence[float]]) -> Average:
    """The mean over folds of the means over seeds, and both spreads.

    With values x_fs, means m_f of n_f runs and F folds, the mean is m = Σ_f m_f / F, the spread between folds
    √(Σ_f (m_f − m)² / (F − 1)), which includes what seeds move the mean of a fold by, and the spread between seeds
    √(Σ_fs (x_fs − m_f)² / Σ_f (n_f − 1)).

    Args:
        folds: values of the runs of each fold, which are trained with different seeds; folds without any are left out.

    Example:
        >>> average([[1.0, 3.0], [6.0]])
        Average(mean=4.0, sd_folds=2.8284271247461903, sd_seeds=1.4142135623730951, folds=2, runs=3)
        >>> average([[0.5]])
        Average(mean=0.5, sd_folds=None, sd_seeds=None, folds=1, runs=1)
    """
    filled = [values for values in folds if values]
    means = [statistics.mean(values) for values in filled]  # exact, so that equal values have a spread of 0
    runs = sum(map(len, filled))
    squares = sum(statistics.variance(values) * (len(values) - 1) for values in filled if len(values) > 1)
    return Average(
        mean=statistics.mean(means) if means else None,
        sd_folds=statistics.stdev(means) if len(means) > 1 else None,
        sd_seeds=math.sqrt(squares / (runs - len(filled))) if runs > len(filled) else None,
        folds=len(filled),
        runs=runs,
    )


@dataclass(frozen=True)
class Group:
    """Runs that are averaged.

    Args:
        names: of the runs, in this order.
        words: what sets it apart from other groups of its model.
    """

    results: Sequence[Result]
    names: Sequence[str]
    name: str
    words: Sequence[str]

    @property
    def first(self) -> Result:
        """One of them, for what all have in common."""
        return self.results[0]

    @property
    def title(self) -> str:
        """The model, what sets the group apart and its name."""
        return _title(self.first, self.words, self.name)

    @property
    def total(self) -> int:
        """Number of runs."""
        return len({result.run.resolve() for result in self.results})

    @property
    def folds(self) -> list[int | None]:
        """All folds; ``[None]`` without cross-validation."""
        return sorted({result.fold for result in self.results}, key=lambda fold: fold or 0)

    @property
    def has_folds(self) -> bool:
        """Whether there is a spread between folds."""
        return len(self.folds) > 1

    @property
    def has_seeds(self) -> bool:
        """Whether there is a spread between the seeds of a fold."""
        return self.total > len(self.folds)

    @property
    def keys(self) -> list[str]:
        """As :func:`keys_of`."""
        return keys_of(self.results)

    def entries(self, key: str) -> list[Entry]:
        """What the runs measured of a metric."""
        return [result.metrics[key] for result in self.results if key in result.metrics]

    def first_entry(self, key: str) -> Entry | None:
        """What one of the runs measured, for unit and direction; None if the metric applies to none."""
        return next(iter(self.entries(key)), None)

    def reasons(self, key: str) -> list[str]:
        """Why a metric does not apply to some of the runs."""
        return list(dict.fromkeys(result.skipped[key] for result in self.results if key in result.skipped))

    def notes(self, key: str) -> list[str]:
        """Why a metric has no value in some of the runs, or leaves out some classes."""
        entries = self.entries(key)
        notes = [f"n/a{' in some runs' if entries else ''}, because {reason}" for reason in self.reasons(key)]
        if undefined := [entry for entry in entries if entry.value is None]:
            reasons = dict.fromkeys(entry.reason for entry in undefined if entry.reason)
            because = f", because {'; '.join(reasons)}" if reasons else ""
            notes.append(f"undefined in {len(undefined)} of {len(entries)} results{because}")
        return notes + list(dict.fromkeys(filter(None, (lacking(entry.model_dump()) for entry in entries))))

    def average(self, key: str) -> Average:
        """A metric over folds and seeds."""
        values = [(result.fold, result.metrics[key].value) for result in self.results if key in result.metrics]
        return average([[v for f, v in values if f == fold and v is not None] for fold in self.folds])

    def repeated(self) -> list[str]:
        """Names of runs that have fold and training seed in common with another; as far as the seed is recorded."""
        marks = [(result.fold, result.train_seed) for result in self.results]
        runs = Counter(dict(zip((result.run for result in self.results), marks, strict=True)).values())
        return [n for n, mark in zip(self.names, marks, strict=True) if mark[1] is not None and runs[mark] > 1]


def _title(result: Result, words: Sequence[str], name: str) -> str:
    return f"{', '.join([result.model, *words])} ({name})"


def titles(results: Sequence[Result]) -> list[str]:
    """Names of evaluations that are shown side by side: as the :attr:`Group.title` of groups of one run each."""
    return list(map(_title, results, words_apart(results), run_names(results)))


def keys_of(results: Sequence[Result]) -> list[str]:
    """Keys of all metrics of results, those that apply to none at the end."""
    return list(dict.fromkeys(key for part in ("metrics", "skipped") for r in results for key in getattr(r, part)))


def groups_of(results: Sequence[Result], across: Sequence[str] = (), by_dataset: bool = False) -> list[Group]:
    """Sort results into groups that share all their conditions.

    Raises:
        ValueError: if a condition is unknown, or a run gives the same metric twice under the same conditions.
    """
    for name in across:
        if all(without(result.conditions, [name]) == result.conditions for result in results):
            known = [short_name(path) for result in results for path in paths(result.conditions)]
            near = did_you_mean(name, known)
            raise ValueError(f"Expected argument `across` to name conditions of these runs, but got {name!r}.{near}")
    names, members = run_names(results), dict[str, list[int]]()
    for index, result in enumerate(results):
        key = json.dumps(without(result.conditions, across), sort_keys=True)
        members.setdefault(key, []).append(index)
    words, groups = words_apart([results[first] for first, *_ in members.values()], by_dataset), []
    for title, each in zip(words, members.values(), strict=True):
        own, others = [names[i] for i in each], [name for i, name in enumerate(names) if i not in each]
        groups.append(Group([results[i] for i in each], own, group_name(own, others), title))
        _refuse_repeats(groups[-1].results)
    return groups


def _refuse_repeats(group: Sequence[Result]) -> None:
    """Two evaluations of one model are not two runs."""
    read: dict[tuple[str, str], Result] = {}
    for result in group:
        for key in result.metrics:
            first = read.setdefault((str(result.run.resolve()), key), result)
            if first is not result:
                raise ValueError(
                    f"Expected every run to give {key} once under the same conditions, but got {first.path} and "
                    f"{result.path}. Name one of them."
                )
