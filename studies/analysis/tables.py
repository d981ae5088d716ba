"""The tables of an analysis: one row per answer, per participant and per result, and what their columns mean."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path

from protometry.evaluation.tables.markdown import lines
from protometry.run_folder.atomic import write_atomic
from protometry.run_folder.csv_text import csv_text
from protometry.studies.analysis.graded import Person
from protometry.studies.analysis.names import FLAGS, name_of
from protometry.studies.analysis.results import Results
from protometry.studies.bundle import Bundle
from protometry.studies.flow import item_questions, page_questions
from protometry.studies.participants import Participant, Visit, steps_of
from protometry.studies.study import Study
from protometry.studies.tasks import task_of

ANSWER_COLUMNS = {
    "participant": "number of the participant",
    "arm": "arm of the study that the page belongs to",
    "step": "index of the page",
    "page": "name of the page",
    "item": "photo with its explanation; empty on other pages",
    "image": "test image of the item, the same in every arm",
    "prediction": "whether the model was right: right or wrong; check: the item shows attention and is not scored",
    "question": "what was asked, see below",
    "value": "the answer; a point of a scale from 1, the id of an option, percent (-1: would not switch), or text",
    "right": "whether the item was answered correctly; empty for other questions than the main one",
    "seconds": "from the first display of the page to its answer; empty where a clock was set back",
}
PERSON_COLUMNS = {
    "participant": "number",
    "external": "id on the platform",
    "session": "session on the platform",
    "arms": "arms of the study, in the order in which they were seen",
    "status": "active, completed, screened, declined or withdrawn",
    "seed": "of the order of items, options and rows",
    "minutes": "on all pages",
    "accuracy": "share of the items answered correctly",
    "flags": "reasons to doubt the answers",
    "excluded": "by the declared rules",
    "pay": "for the planned duration",
    "bonus": "for an accuracy above chance",
}


def write_answers(
    file: Path, bundle: Bundle, people: list[Participant], visits: list[Visit], graded: list[Person]
) -> None:
    """One row per answer of everybody who answered, also of those who did not finish."""
    ways = {person.number: steps_of(bundle.study, person) for person in people if person.items}
    right = {(one.person, one.item.id): one.right for person in graded for one in person.items}
    rows = []
    for visit in visits:
        key = bundle.key.items.get(visit.item or "")
        for question, value in visit.answers.items():
            step = ways[visit.number][visit.step]
            arm, scored = step.arm, step.item is not None and step.arm.is_scored(step.item)
            main = bundle.tasks[arm.id].main
            graded_as = right.get((visit.number, visit.item or "")) if question == main else None
            prediction = (("right" if key.right else "wrong") if scored else "check") if key else None
            where = (visit.number, arm.id, visit.step, visit.name, visit.item, key.image if key else None)
            rows.append((*where, prediction, question, value, graded_as, visit.seconds))
    _write(file, ANSWER_COLUMNS, rows)


def write_participants(file: Path, study: Study, people: list[Participant], graded: list[Person]) -> None:
    """One row per participant, with what is to be paid."""
    rows = []
    for one in people:
        own = [person for person in graded if person.participant.number == one.number]
        right = [answer.right for person in own for answer in person.items]
        share = sum(right) / len(right) if right else math.nan
        times = [math.nan if person.seconds is None else person.seconds for person in own]
        minutes = sum(times) / 60 if times else math.nan
        flags = own[0].flags if own else []
        excluded = bool(set(flags) & set(study.quality.exclude))
        pay = study.platform.pay if one.status in ("completed", "screened") else 0.0
        bonus = study.platform.bonus if share > task_of(study.task, study.arm(one.arms[0]).form).chance else 0.0
        about = (one.number, one.external, one.session, " ".join(one.arms), one.status, one.seed)
        rows.append((*about, minutes, share, " ".join(flags), excluded, pay, bonus))
    file.touch(0o600)  # it holds ids of the platform
    _write(file, PERSON_COLUMNS, rows)


def write_results(file: Path, results: dict[str, Results]) -> None:
    """One row per result."""
    columns = ("participants", "arm", "key", "value", "sd", "n", "low", "high", "details", "reason")
    rows = [
        (who, arm, key, one.value, one.sd, one.n, *one.interval, json.dumps(one.details, default=float), one.reason)
        for who, by_arm in results.items()
        for arm, entries in by_arm.items()
        for key, one in entries.items()
    ]
    _write(file, columns, rows)


def write_codebook(file: Path, study: Study, results: Results) -> None:
    """What the columns, the questions and the results of this study mean."""
    parts = [f"# Codebook of {study.id}"]
    for name, columns in (("answers.csv", ANSWER_COLUMNS), ("participants.csv", PERSON_COLUMNS)):
        parts += [f"## {name}", _table(["column", "meaning"], columns.items())]
    parts.append("Flags: " + ", ".join(f"{flag} ({words})" for flag, words in FLAGS.items()) + ".")
    pages = ("consent", "background", "understanding.intro", "tradeoff", "comments")
    asked = [question for page in pages for question in page_questions(study, page, study.arms[0])]
    for arm in study.arms:
        asked += [question for item in arm.items[:1] for question in item_questions(study, arm, item)]
        checks = [question for item in arm.checks for question in item_questions(study, arm, item)]
        asked += [question for question in checks if question.name == "attention"]
    rows = [
        (name, question.text, "; ".join(f"{value}: {text}" for value, text in question.options) or question.kind)
        for name, question in {_column(one.name): one for one in asked}.items()
    ]
    parts += ["## Questions", _table(["question", "text", "answers"], rows)]
    meanings = {key: name_of(key).text for entries in results.values() for key in entries}
    parts += ["## Results", _table(["key", "meaning"], meanings.items())]
    write_atomic(file, "\n\n".join(parts) + "\n")


def _column(question: str) -> str:
    """One name for the same question about every row."""
    kind, *row = question.split(".")
    return f"{kind}.*" if row and kind in ("similarity", "clarity", "pair") else question


def _table(header: list[str], rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join(lines(header, list(rows), left=len(header)))


def _write(file: Path, columns: Iterable[str], rows: Iterable[tuple[object, ...]]) -> None:
    text = csv_text([list(columns), *([_rounded(value) for value in row] for row in rows)])
    write_atomic(file, text)


def _rounded(value: object) -> object:
    if not isinstance(value, float):
        return value
    return round(value, 6) if math.isfinite(value) else None
