"""The analysis of a study: everything twice, with all participants and after the declared exclusions."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from pydantic_core import to_json

from protometry.run_folder.atomic import write_atomic
from protometry.studies.analysis.automatic import LOCALISATION, Columns, metric_results, read_automatic
from protometry.studies.analysis.graded import Person, grade
from protometry.studies.analysis.names import figure, unit_of
from protometry.studies.analysis.results import (
    Results,
    StudyResult,
    accuracy_results,
    belief_results,
    confidence_results,
    default_test,
    difference,
    mean_result,
    output_results,
    rating_results,
)
from protometry.studies.analysis.similarity import similarity_results
from protometry.studies.analysis.tables import write_answers, write_codebook, write_participants, write_results
from protometry.studies.bundle import Bundle, load_bundle
from protometry.studies.flow import expected
from protometry.studies.participants import SIMULATED, read_database
from protometry.studies.study import Arm

RESULTS, SUMMARY = "analysis", "summary.json"  # folder in the bundle, and the file that is written first


def analyse(
    folder: Path,
    database: Path | None = None,
    out: Path | None = None,
    images: dict[str, Path] | None = None,
    metrics: str = LOCALISATION,
) -> dict[str, Any]:
    """Analyse a study and write its results.

    Args:
        folder: the bundle.
        database: of the answers; ``answers.sqlite`` in the bundle if None.
        out: folder for the results, free or with those of an earlier analysis, which are replaced; ``analysis`` in the
            bundle if None.
        images: of an arm, ``images.csv`` of an evaluation of its model with the explainer of the study, whose metrics
            are correlated with the answers to the same images.
        metrics: columns of these files, separated by commas.

    Returns:
        The content of ``summary.json``: how many ``participants`` there are, by status and flag, and how many are
        analysed and kept; ``results`` of all of them and of those who are kept, by arm or pair of arms, then by key;
        and the path of the ``bundle`` from the folder of the results, among others. Also written: ``answers.csv``,
        ``participants.csv``, ``tables.csv``, ``codebook.md`` and ``index.html``.

    Raises:
        ValueError: if the bundle or the database is missing or broken, or does not belong to the other, or the folder
            for the results holds anything else.
    """
    bundle = load_bundle(folder)
    out = out or folder / RESULTS
    _check_folder(out)
    columns = read_automatic(bundle, images or {}, metrics.split(","))
    database = database or folder / "answers.sqlite"
    digest, people, visits = read_database(database)
    if digest != bundle.hash:
        raise ValueError(
            f"{database} holds answers to a study with the hash {digest[:12]}, but {folder} has "
            f"{bundle.hash[:12]}: analyse it with the bundle that was served."
        )
    from protometry.studies.analysis.page import (
        page,  # imports torch, which takes seconds and a missing study does not need
    )

    graded = grade(bundle, people, visits)
    kept = [person for person in graded if not set(person.flags) & set(bundle.study.quality.exclude)]
    flagged = {person.participant.number: person.flags for person in graded}
    of_all = results_of(bundle, graded, columns)
    results = {"all": of_all, "kept": of_all if len(kept) == len(graded) else results_of(bundle, kept, columns)}
    summary = {
        "schema": 1,
        "study": bundle.study.id,
        "hash": bundle.hash,
        "task": bundle.study.task,
        "participants": {
            "status": dict(Counter(person.status for person in people)),
            "flags": dict(Counter(flag for flags in flagged.values() for flag in flags)),
            "simulated": sum(person.agent.startswith(SIMULATED) for person in people),
            "analysed": len({person.participant.number for person in graded}),
            "kept": len({person.participant.number for person in kept}),
        },
        "exclude": bundle.study.quality.exclude,
        "family": bundle.study.quality.family,
        "results": {name: plain(by_arm) for name, by_arm in results.items()},
        "images": {arm: os.path.relpath(file.resolve(), out.resolve()) for arm, file in (images or {}).items()},
        "bundle": os.path.relpath(folder.resolve(), out.resolve()),
    }
    write_atomic(out / SUMMARY, json.dumps(summary, indent=1, allow_nan=False) + "\n")
    write_answers(out / "answers.csv", bundle, people, visits, graded)
    write_participants(out / "participants.csv", bundle.study, people, graded)
    write_results(out / "tables.csv", results)
    write_codebook(out / "codebook.md", bundle.study, of_all)
    write_atomic(out / "index.html", page(bundle.study, summary))
    return summary


def _check_folder(out: Path) -> None:
    """Refuse a folder whose files are not those of an analysis, which writes its summary first."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    with suppress(OSError, ValueError, AttributeError):
        if {"study", "results"} <= json.loads((out / SUMMARY).read_bytes()).keys():
            return
    problem = "holds other files" if out.is_dir() else "is a file"
    raise ValueError(
        f"Expected a folder that is free or holds an earlier analysis, but {out} {problem}. Name another with `--out`."
    )


def command(folder: Path, out: Path | None = None, **arguments: Any) -> str:
    """Analyse a study, and give the results that are tested as lines.

    Args:
        folder: the bundle.
        out: folder for the results, free or with those of an earlier analysis, which are replaced; ``analysis`` in the
            bundle if None.
        arguments: the other ones of :func:`analyse`.
    """
    summary = analyse(folder, out=out, **arguments)
    lines = [f"{'arm':<20} {'result':<34} {'value':>12} {'SD':>9} {'n':>5}  p"]
    for arm, entries in summary["results"]["all"].items():
        for key, one in entries.items():
            test = default_test(one["details"])
            if test is None:
                continue
            p = f"{test['p']:.3g}" if "p" in test else f"n/a: {test['reason']}"
            unit = unit_of(key, arm)
            numbers = f"{figure(one['value'], unit):>12} {figure(one['sd'], '%' if unit else ''):>9} {one['n']:>5}"
            lines.append(f"{arm:<20} {key:<34} {numbers}  {p}")
    lines.append(f"Everything, in words and pictures: {(out or folder / RESULTS) / 'index.html'}")
    return "\n".join(lines)


def results_of(bundle: Bundle, people: list[Person], columns: dict[str, Columns]) -> Results:
    """All results by arm, and comparisons by pair of arms."""
    study = bundle.study
    by_arm = {arm.id: [person for person in people if person.arm == arm.id] for arm in study.arms}
    results: Results = {
        arm.id: _arm_results(bundle, arm, by_arm[arm.id]) | metric_results(by_arm[arm.id], columns.get(arm.id, {}))
        for arm in study.arms
    }
    name = f"study/{study.task}_total"
    for first, second in itertools.combinations(study.arms, 2):
        pair, same = (by_arm[first.id], by_arm[second.id]), study.assignment.arms > 1
        results[f"{first.id} - {second.id}"] = {name: difference(*pair, study.quality.margin, same)}
    correct(results, study.quality.family)
    return results


def _arm_results(bundle: Bundle, arm: Arm, people: list[Person]) -> dict[str, StudyResult]:
    study, task = bundle.study, bundle.tasks[arm.id]
    results = accuracy_results(study.task, task, people)
    if task.scale == "belief":
        results |= belief_results(people)
    if study.pages.output and task.options > 1:
        results |= output_results(people)
    results |= confidence_results(task, people)
    results |= similarity_results(people)
    if arm.form == "tree":
        cards = [name for name in (people[0].pages if people else {}) if name.startswith("warm_up.")]
        right = [[person.pages.get(card) == expected(study, card)[card] for card in cards] for person in people]
        results["study/warmup_tree"] = mean_result([float(np.mean(one)) for one in right])
    return results | rating_results(arm, people)


def correct(results: Results, family: list[str]) -> None:
    """Add Holm-corrected p values to the declared hypotheses, ``<arm>/<key>`` or ``<arm> - <arm>/<key>``."""
    from protometry.evaluation.tables.paired_statistics import holm  # as `page` above

    members = []
    for name in family:
        arm, _, key = name.partition("/")
        if arm in results and key in results[arm]:
            members.append(results[arm][key])
    p_values = [(default_test(one.details) or {}).get("p", math.nan) for one in members]
    for one, p in zip(members, holm(np.array(p_values, dtype=np.float64)).tolist(), strict=True):
        one.details["holm_p"] = p


def plain(results: Results) -> dict[str, Any]:
    """Results as JSON holds them, with null for what is undefined."""
    content: dict[str, Any] = json.loads(to_json(results, inf_nan_mode="null", fallback=np.generic.item))
    return content
