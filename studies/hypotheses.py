"""The results that a study tests, by name: a declared hypothesis must be one of them before the study starts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from protometry.run_folder.command_line.messages import did_you_mean
from protometry.studies.study import Study
from protometry.studies.tasks import task_of


def hypotheses(study: Study) -> list[str]:
    """Every result with a p value that Holm's correction can take, as ``<arm>/<key>`` or ``<arm> - <arm>/<key>``."""
    counts = {"correct": study.assignment.right, "incorrect": study.assignment.wrong}
    given = [suffix for suffix, number in counts.items() if number]
    names = []
    for arm in study.arms:
        keys = [f"{study.task}_{suffix}" for suffix in (*given, "total")] + ["understanding_change"]
        if study.pages.output and task_of(study.task, arm.form).options > 1:
            keys += [f"output_{suffix}" for suffix in given]
        if arm.similarity == "pairwise":
            keys.append("similarity_pairwise")
        names += [f"{arm.id}/study/{key}" for key in keys]
    return names + [f"{a.id} - {b.id}/study/{study.task}_total" for a, b in itertools.combinations(study.arms, 2)]


def unknown_hypotheses(study: Study) -> Iterator[str]:
    """One line for each declared hypothesis that the study does not test."""
    known = hypotheses(study)
    for name in study.quality.family:
        if name not in known:
            near = did_you_mean(name, known) or f" It tests {', '.join(known)}."
            yield f"`quality.family`: {name!r} is not a result that this study tests.{near}"
