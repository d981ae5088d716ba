"""Participants and their answers, read from the database of a study without changing it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from protometry.studies.flow import Page, Status, steps
from protometry.studies.questions import Answers
from protometry.studies.study import Study


@dataclass(frozen=True)
class Participant:
    """A row of the table of participants.

    Attributes:
        number: from 1; decides the seed.
        id: random, 128 bits; known to the participant's browser only.
        external: id on the platform that sent the participant.
    """

    number: int
    id: str
    external: str | None
    session: str | None
    arms: list[str]
    items: list[str]
    seed: str
    step: int
    status: Status
    joined: float
    last: float
    agent: str


SIMULATED = "simulated "  # the agent of participants that are none begins so
COLUMNS = ", ".join(field.name for field in fields(Participant))


def participant_of(row: tuple[Any, ...]) -> Participant:
    """The participant of a row with ``COLUMNS``."""
    values = dict(zip((field.name for field in fields(Participant)), row, strict=True))
    return Participant(**values | {name: json.loads(values[name]) for name in ("arms", "items")})


def steps_of(study: Study, who: Participant) -> list[Page]:
    """The pages of a participant, in order."""
    return steps(study, who.arms, who.items, who.seed)


@dataclass(frozen=True)
class Visit:
    """An answered page.

    Attributes:
        seconds: from its first display to its answer; None where a clock was set back.
        client: what the browser claims.
    """

    number: int
    step: int
    name: str
    seconds: float | None
    client: dict[str, object]
    item: str | None
    answers: Answers


def read_database(file: Path) -> tuple[str, list[Participant], list[Visit]]:
    """Read a database without changing it, also while it is being served.

    Returns:
        Hash of its study, participants and answered pages.

    Raises:
        ValueError: if it is missing or not a database of a study.
    """
    if not file.is_file():
        raise ValueError(f"{file} is missing: there are no answers yet, or they are in another file.")
    try:
        with closing(
            sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None)
        ) as connection:
            connection.execute("BEGIN")
            digest = connection.execute("SELECT hash FROM study").fetchone()[0]
            people = [
                participant_of(row) for row in connection.execute(f"SELECT {COLUMNS} FROM participant ORDER BY number")
            ]
            rows = connection.execute(
                "SELECT participant, step, name, seconds, client FROM page WHERE answered IS NOT NULL ORDER BY 1, 2"
            ).fetchall()
            given: dict[tuple[int, int], Answers] = {}
            items: dict[tuple[int, int], str | None] = {}
            for number, step, item, question, value in connection.execute("SELECT * FROM answer ORDER BY rowid"):
                given.setdefault((number, step), {})[question] = json.loads(value)
                items[number, step] = item
    except (sqlite3.DatabaseError, TypeError) as error:
        if "disk I/O" in str(error):  # SQLite keeps an index beside the log of a database that was not closed
            raise ValueError(f"{file} cannot be read: {error}. Is its disk full?") from None
        raise ValueError(f"{file} is not a database of a study: {error}.") from None
    visits = [
        Visit(number, step, name, seconds, json.loads(client), items.get((number, step)), given.get((number, step), {}))
        for number, step, name, seconds, client in rows
    ]
    return digest, people, visits
