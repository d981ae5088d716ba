"""Answers that participants saved from files without a server, checked and put in order."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field

from protometry.studies.bundle import Bundle
from protometry.studies.flow import Status, after
from protometry.studies.participants import Participant, Visit, steps_of
from protometry.studies.questions import form_of, read_answers
from protometry.studies.records import read
from protometry.studies.single_file.write import SCHEMA, first_participants


@dataclass(frozen=True)
class Saved:
    """What a browser saved.

    Attributes:
        began: time of the browser in seconds.
        pages: names and values of the fields of every page, in order.
    """

    schema: int
    study: str
    hash: str
    number: Annotated[int, Field(ge=1)]
    agent: str
    began: float
    at: int
    end: str
    pages: list[list[list[str]]]


def read_folder(bundle: Bundle, folder: Path) -> tuple[list[Participant], list[Visit]]:
    """Read all saved answers of a folder as if they came from a database.

    Raises:
        ValueError: if there are none, or something is wrong with some; every problem in one line.
    """
    files = sorted(folder.glob("*.json"))
    if not files:
        raise ValueError(f"{folder} holds no saved answers (*.json).")
    problems: list[str] = []
    saved: dict[int, tuple[Path, Saved]] = {}
    for file in files:
        try:
            one = _saved(bundle, file)
            if one.number in saved:
                raise ValueError(f"{file}: participant {one.number} is in {saved[one.number][0].name} already.")
            saved[one.number] = (file, one)
        except ValueError as error:
            problems.append(str(error))
    people: list[Participant] = []
    visits: list[Visit] = []
    for who in first_participants(bundle, max(saved, default=1)):
        if who.number not in saved:
            continue
        file, one = saved[who.number]
        try:
            status, own = _visits(bundle, who, one, file)
        except ValueError as error:
            problems.append(str(error))
            continue
        last = one.began + sum(visit.seconds or 0 for visit in own)
        people.append(replace(who, status=status, joined=one.began, last=last, agent=one.agent[:300]))
        visits += own
    if problems:
        raise ValueError("\n".join([f"{len(problems)} of {len(files)} files in {folder} cannot be used:", *problems]))
    return people, visits


def _saved(bundle: Bundle, file: Path) -> Saved:
    try:
        outer = json.loads(file.read_bytes())
        text, checksum = outer["record"], outer["checksum"]
        content = json.loads(text)
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{file}: was not saved by a study.") from None
    if zlib.crc32(text.encode()) != checksum:
        raise ValueError(f"{file}: has been changed or cut short; its checksum is another one.")
    saved = read(Saved, content, str(file))
    if saved.schema != SCHEMA:
        raise ValueError(f"{file}: schema {saved.schema} cannot be read by this version, which reads {SCHEMA}.")
    if saved.hash != bundle.hash:
        raise ValueError(f"{file}: is of the study {saved.study!r} ({saved.hash[:12]}), not of {bundle.hash[:12]}.")
    return saved


def _visits(bundle: Bundle, who: Participant, saved: Saved, file: Path) -> tuple[Status, list[Visit]]:
    """Follow the saved pages along the way of the participant; the page with the result is not there."""
    study, way = bundle.study, steps_of(bundle.study, who)
    index = 0
    status: Status = "active"
    visits: list[Visit] = []
    for fields in saved.pages:
        if status != "active":
            raise ValueError(f"{file}: continues after its end, at page {len(visits) + 1}.")
        if any(len(pair) != 2 for pair in fields):
            raise ValueError(f"{file}, page {len(visits) + 1}: a field is not a name with a value.")
        step, form = way[index], form_of([(name, value) for name, value in fields])
        where = f"{file}, page {len(visits) + 1} ({step.page})"
        if form.step != index:
            raise ValueError(f"{where}: is step {form.step}, but {index} was expected.")
        answers, errors = read_answers(step.questions, form.answers, study.language)
        if errors:
            raise ValueError("; ".join(f"{where}, {name}: {message}" for name, message in errors.items()))
        seconds = form.client["seconds"]
        item = step.item.id if step.item else None
        passed = float(seconds) if isinstance(seconds, int) else None
        visits.append(Visit(who.number, index, step.page, passed, form.client, item, answers))
        index, status = after(study, way, index, answers)
        if status == "active" and way[index].page == "result":
            index += 1
            status = "completed" if index == len(way) else status
    return status, visits
