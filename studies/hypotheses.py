"""The results that a study tests, by name: a declared hypothesis must be one of them before the study starts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Protocol

from protometry.command_line.messages import did_you_mean
from protometry.studies.study import Assignment, Form, Pages, Quality, Similarity, TaskName
from protometry.studies.tasks import task_of


class ArmLike(Protocol):
    """What an arm of a study, and a method that becomes one, have in common."""

    @property
    def id(self) -> str:
        """Of the arm."""

    @property
    def form(self) -> Form:
        """Of its explanations."""

    @property
    def similarity(self) -> Similarity:
        """How rows are rated."""


def hypotheses(task: TaskName, arms: Sequence[ArmLike], assignment: Assignment, pages: Pages) -> list[str]:
    """Every result with a p value that Holm's correction can take, as ``<arm>/<key>`` or ``<arm> - <arm>/<key>``."""
    given = [suffix for suffix, number in (("correct", assignment.right), ("incorrect", assignment.wrong)) if number]
    names = []
    for arm in arms:
        keys = [f"{task}_{suffix}" for suffix in (*given, "total")] + ["understanding_change"]
        if pages.output and task_of(task, arm.form).options > 1:
            keys += [f"output_{suffix}" for suffix in given]
        if arm.similarity == "pairwise":
            keys.append("similarity_pairwise")
        names += [f"{arm.id}/study/{key}" for key in keys]
    return names + [f"{a.id} - {b.id}/study/{task}_total" for a, b in itertools.combinations(arms, 2)]


def unknown_hypotheses(
    quality: Quality, task: TaskName, arms: Sequence[ArmLike], assignment: Assignment, pages: Pages
) -> Iterator[str]:
    """One line for each declared hypothesis that the study does not test."""
    known = hypotheses(task, arms, assignment, pages)
    for name in quality.family:
        if name not in known:
            near = did_you_mean(name, known) or f" It tests {', '.join(known)}."
            yield f"`quality.family`: {name!r} is not a result that this study tests.{near}"
