"""Two runs against each other on the same images: paired differences with intervals and corrected p values."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from protometry.evaluation.results.differences import NOT_STATED, differing, named, short
from protometry.evaluation.results.metrics_json import REMEDY, Result
from protometry.evaluation.results.runs import NOT_READ, passed_over, read, read_from
from protometry.evaluation.results.values_csv import ImageValues, read_values
from protometry.evaluation.tables.groups import titles
from protometry.evaluation.tables.markdown import UNDEFINED, interval, lines, number, printed_unit
from protometry.evaluation.tables.paired_statistics import Paired, paired
from protometry.metrics.page import arrow
from protometry.run_folder.command_line.messages import counted, did_you_mean
from protometry.run_folder.layout import IMAGES

# numbers of runs that differ in one of these mean different things
MUST_AGREE = (
    "dataset",
    "data",
    "other_data",
    "split",
    "variant",
    "explainer",
    "explained_by",
    "interface",
    "foreign_weights",
    "object",
    "top_k",
    "noise",
    "view",
)
OF_A_MODEL = ("training.model", "training.phases", "training.epochs")
BY_SUITE = ("explainer", "explained_by", "interface", "object")  # None if no metric of the suite reads it


@dataclass(frozen=True)
class Comparison:
    """What two runs have in common and what sets them apart.

    Args:
        shared: sorted ids of the images on which they are compared.
        differing: what the evaluations differ in, as it is printed.
        notes: how the numbers were made.
    """

    results: tuple[Result, Result]
    shared: list[str]
    rows: list[Paired]
    differing: list[str]
    notes: list[str]


def compare(
    run: str,
    other: str,
    across: list[str] = [],  # noqa: B006  (the command line shows it as the default)
    common: bool = False,
    draws: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """Print the paired comparison of two runs on the same images.

    Args:
        run: as for :func:`~protometry.evaluation.results.runs.collect`.
        other: the run to compare with it.
        across: conditions in which the runs may differ although their numbers then mean different things, such as
            explainer.
        common: compare on the images both have, if they do not have the same.
        draws: of the test.
        seed: of these draws.
    """
    results = read(run), read(other)
    if results[0].path.resolve() == results[1].path.resolve():
        raise ValueError(f"Expected two evaluations to compare, but got {results[0].path} twice.")
    apart = differences(*results)
    _refuse(apart, across)
    first, second = (_values(result) for result in results)
    shared = _shared(first, second, common)
    rows = paired(first, second, shared, draws, seed)
    head = [f"### B - A on {len(shared)} images", ""]
    for letter, title, result in zip("AB", titles(results), results, strict=True):
        mark = f", {result.incomplete_training}" if result.incomplete_training else ""
        head.append(f"- {letter}: {title} on {result.dataset}, {result.split} split{mark}, {read_from(result)}")
    notes = [
        *(
            f"{letter}: {NOT_READ}: {passed_over(each)}"
            for letter, each in zip("AB", results, strict=True)
            if each.others
        ),
        *_method_notes(draws, seed, sum(math.isfinite(row.p_value) for row in rows)),
        *_left_out(first, second, shared),
    ]
    all_notes = [*_differing_notes(apart), *notes]
    print("\n".join([*head, *(f"- {note}" for note in all_notes), "", *lines(*table_of(rows, results[0]), left=2)]))
    return Comparison(results, shared, rows, named(apart), notes)


def compare_evaluations(
    first: Any, second: Any, across: Collection[str] = (), common: bool = False, draws: int = 10_000, seed: int = 0
) -> list[Paired]:
    """Compare what was measured of two models on the same images, without files.

    ::

        first_trainer.test(first, data), second_trainer.test(second, data)
        rows = compare(first_suite.evaluation, second_suite.evaluation)

    Args:
        first: ``evaluation`` of an :class:`.Interpretability` after a test.
        second: the same of the other model.
        across: conditions in which the evaluations may differ although their numbers then mean different things, such
            as ``explained_by``.
        common: compare on the images both have, if they do not have the same.
        draws: of the test.
        seed: of these draws.

    Returns:
        Means, difference second - first with its 95 % interval, and p value for each metric of images.

    Raises:
        ValueError: if the evaluations share no image, or differ in what the numbers mean.
    """
    protocols = {name: (first.protocol.get(name), second.protocol.get(name)) for name in MUST_AGREE}
    _refuse({name: pair for name, pair in protocols.items() if pair[0] != pair[1]}, across)
    one, other = _of_images(first.images), _of_images(second.images)
    return paired(one, other, _shared(one, other, common), draws, seed)


def _of_images(images: Mapping[int, Mapping[str, float]]) -> ImageValues:
    keys = list(next(iter(images.values()), {}))
    rows = [[row[key] for key in keys] for row in images.values()]
    return ImageValues([str(name) for name in images], keys, np.array(rows, dtype=np.float64).reshape(-1, len(keys)))


def differences(first: Result, second: Result) -> dict[str, tuple[Any, Any]]:
    """The conditions in which two results differ, without those that only one of them has, by its suite."""
    facts = [{**r.conditions, **r.incidentals, "fold": r.fold, "seed": r.seed} for r in (first, second)]
    apart = {path: (a, b) for path, (a, b) in differing(facts).items() if path != "folds"}
    if first.model != second.model:  # whose arguments and phases are others
        apart = {path: pair for path, pair in apart.items() if not path.startswith(OF_A_MODEL)}
    return {path: pair for path, pair in apart.items() if path not in BY_SUITE or None not in pair}


def _refuse(differing: Mapping[str, tuple[Any, Any]], across: Collection[str]) -> None:
    """Numbers that mean different things are compared only on demand."""
    if unknown := [name for name in across if name not in MUST_AGREE]:
        raise ValueError(
            f"Expected argument `across` to hold names among {list(MUST_AGREE)}, but got {unknown}."
            + did_you_mean(unknown[0], MUST_AGREE)
        )
    refused = {
        path: pair
        for path, pair in differing.items()
        if _must_agree(path)
        and path.split(".")[0] not in across
        and ("." in path or all(value not in (None, NOT_STATED) for value in pair))
    }
    if refused:
        got = ", ".join(f"{path} {short(one)} and {short(other)}" for path, (one, other) in refused.items())
        tops = list(dict.fromkeys(path.split(".")[0] for path in refused))
        flags = " ".join(f"--across+={name}" for name in tops)
        raise ValueError(
            f"Expected both runs to agree in {', '.join(tops)}, but got {got}. If that difference is what you "
            f"compare, pass `{flags}`."
        )


def _values(result: Result) -> ImageValues:
    """Those of all images of an evaluation."""
    path, expected = result.path.with_name(IMAGES), result.timing["images"]
    values = read_values(path)
    if len(values.sample_ids) != expected:
        raise ValueError(
            f"Expected {path} to hold the {counted(expected, 'image')} of metrics.json, but got "
            f"{len(values.sample_ids):,}. {REMEDY}"
        )
    return values


def _shared(first: ImageValues, second: ImageValues, common: bool) -> list[str]:
    """Sorted ids of the images to compare on."""
    ids, others = set(first.sample_ids), set(second.sample_ids)
    shared = sorted(ids & others)
    if not shared:
        raise ValueError(
            f"Expected both runs to be evaluated on the same images, but the {len(ids)} of the first and the "
            f"{len(others)} of the second share none. Compare runs of one data set and split."
        )
    if ids != others and not common:
        raise ValueError(
            f"Expected both runs to be evaluated on the same images, but {len(ids - others)} are only in the first and "
            f"{len(others - ids)} only in the second, such as {sorted(ids ^ others)[0]!r}. Pass `--common true` to "
            f"compare on the {len(shared)} they share."
        )
    return shared


def _must_agree(path: str) -> bool:
    return path.split(".")[0] in MUST_AGREE


def _differing_notes(differing: Mapping[str, tuple[Any, Any]]) -> list[str]:
    paths = zip(differing, named(differing), strict=True)
    marked = [f"**{text}**" if _must_agree(path) else text for path, text in paths]
    return [f"A and B differ in: {'; '.join(marked)}"] if marked else []


def _method_notes(draws: int, seed: int, tests: int) -> list[str]:
    return [
        "means and differences over the n images on which both are defined",
        "95 %: Student's interval of the mean difference; undefined where the difference of all images is the same",
        f"p: two-sided sign-flip test of the mean difference, {draws} draws, seed {seed}; Holm: corrected over "
        f"{tests} metrics",
    ]


def _left_out(first: ImageValues, second: ImageValues, shared: Sequence[str]) -> list[str]:
    notes = []
    lost = [len(each.sample_ids) - len(shared) for each in (first, second)]
    if any(lost):
        notes.append(f"left out: {lost[0]} images only in A, {lost[1]} only in B")
    for name, one, two in (("A", first, second), ("B", second, first)):
        if alone := [key for key in one.keys if key not in two.keys]:
            notes.append(f"only in {name}: {', '.join(alone)}")
    return notes


def table_of(rows: Sequence[Paired], result: Result) -> tuple[list[str], list[list[str]]]:
    """The comparison as it is printed: names of columns, and a line of cells per metric."""
    header = ["metric", "unit", "A", "B", "B - A", "95 %", "p", "p (Holm)", "n"]
    cells = []
    for row in rows:
        measured = result.metrics.get(row.key)
        unit = measured.unit if measured else ""
        difference = number(row.difference, unit)
        cells.append(
            [
                f"{row.key} {arrow(measured.higher_is_better if measured else None)}".rstrip(),
                printed_unit(unit),
                number(row.first, unit),
                number(row.second, unit),
                f"+{difference}" if row.difference > 0 else difference,
                interval(row.low, row.high, unit) or UNDEFINED,
                *(UNDEFINED if np.isnan(p) else f"{p:.2g}" for p in (row.p_value, row.corrected)),
                str(row.pairs),
            ]
        )
    return header, cells
