"""The database of a study: every page is one committed transaction, and nothing is stored in part or twice."""

from __future__ import annotations

import errno
import fcntl
import hmac
import json
import os
import secrets
import sqlite3
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

from protometry.studies.assignment import arm_orders, choose_items, participant_seed
from protometry.studies.bundle import Bundle
from protometry.studies.flow import Page, after
from protometry.studies.participants import COLUMNS, Participant, participant_of
from protometry.studies.questions import Answers

TABLES = """
CREATE TABLE IF NOT EXISTS study (id TEXT NOT NULL, hash TEXT NOT NULL, secret TEXT NOT NULL, created REAL NOT NULL);
CREATE TABLE IF NOT EXISTS participant (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, external TEXT UNIQUE, session TEXT,
    arms TEXT NOT NULL, items TEXT NOT NULL, seed TEXT NOT NULL, step INTEGER NOT NULL, status TEXT NOT NULL,
    joined REAL NOT NULL, last REAL NOT NULL, agent TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS page (
    participant INTEGER NOT NULL REFERENCES participant(number), step INTEGER NOT NULL, name TEXT NOT NULL,
    opened REAL NOT NULL, answered REAL, seconds REAL, client TEXT NOT NULL DEFAULT '{}',
    PRIMARY KEY (participant, step));
CREATE TABLE IF NOT EXISTS answer (
    participant INTEGER NOT NULL REFERENCES participant(number), step INTEGER NOT NULL, item TEXT,
    question TEXT NOT NULL, value TEXT NOT NULL, UNIQUE (participant, step, question));
CREATE TABLE IF NOT EXISTS event (time REAL NOT NULL, participant INTEGER, kind TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS withdrawn (person TEXT PRIMARY KEY);
"""
CONSENT_MINUTES = 10  # that a place is kept for somebody who has not agreed to take part yet
ROOM = 2**20  # bytes on the disk without which answers are as good as lost
OTHER = "Name another with `--database`."
FULL = "disk is full"  # in errors of SQLite
Outcome = Literal["stored", "same", "conflict", "stale"]


class RefusedError(Exception):
    """Somebody who may not take part: ``withdrawn`` before, or known, but from ``elsewhere``, another browser."""

    def __init__(self, name: Literal["withdrawn", "elsewhere"]) -> None:
        super().__init__(name)
        self.name = name


@contextmanager
def open_store(file: Path, bundle: Bundle) -> Iterator[Store]:
    """The database of a study for one process alone, made if missing, and closed at the end.

    It belongs on a local disk; ``<file>.lock`` is locked while it is open.

    Raises:
        ValueError: if it is not a database of answers, another process has it open, or it belongs to another study.
    """
    file = file.resolve()  # one lock for all links to a database
    _check_file(file)
    with Path(f"{file}.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(f"{file} is being served already: end that server first, or give another file.") from None
        with _full_disk_named(file):
            try:
                store = Store(file, bundle)
            except sqlite3.Error as error:
                if FULL in str(error):
                    raise
                raise ValueError(
                    f"Expected {file} to be a database that can be written, but {error}. {OTHER}"
                ) from error
            try:
                yield store
            finally:
                store.close()


@contextmanager
def _full_disk_named(file: Path) -> Iterator[None]:
    """Say that a disk is full as the operating system does, and what was being written."""
    try:
        yield
    except sqlite3.Error as error:
        if FULL not in str(error):
            raise
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file)) from error


def _check_file(file: Path) -> None:
    """Refuse anything but a database of answers, an empty one or nothing, before it is changed in any way."""
    if not file.exists():
        return
    problem = "it is not a file"
    if file.is_file():
        log = Path(f"{file}-wal")  # without it, a database on a disk that was full may be half of one
        how = "mode=ro" if log.is_file() and log.stat().st_size else "immutable=1"
        try:
            with closing(sqlite3.connect(f"{file.as_uri()}?{how}", uri=True)) as connection:
                tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        except sqlite3.Error as error:
            problem = str(error)
        else:
            if not tables or {"study", "participant", "page", "answer"} <= tables:
                return
            problem = f"it holds {', '.join(sorted(tables))}"
    raise ValueError(f"Expected {file} to be a database of answers, or new, but {problem}. {OTHER}")


class Store:
    """Reads and writes the database of one study.

    Raises:
        ValueError: if the database belongs to another study, or to another version of this one.
    """

    def __init__(self, file: Path, bundle: Bundle) -> None:
        self.bundle = bundle
        self._lock = threading.Lock()
        self._opened: dict[tuple[int, int], float] = {}  # by the monotonic clock of this process
        self._file, self._leftover = file, False
        if str(file) != ":memory:":
            file.touch(0o600)
            for part in (file, Path(f"{file}-wal"), Path(f"{file}-shm")):
                if part.exists():
                    part.chmod(0o600)
        self._connection = sqlite3.connect(file, timeout=5, isolation_level=None, check_same_thread=False)
        for setting in ("journal_mode=WAL", "foreign_keys=ON", "secure_delete=ON"):
            self._connection.execute(f"PRAGMA {setting}")
        with self._transaction() as connection:  # with its first row, or a full disk leaves half of a database
            for statement in TABLES.split(";"):
                connection.execute(statement)
            row = connection.execute("SELECT id, hash, secret FROM study").fetchone()
            if row is None:
                row = (bundle.study.id, bundle.hash, secrets.token_hex(32))
                connection.execute("INSERT INTO study VALUES (?, ?, ?, ?)", (*row, time.time()))
        if row[:2] != (bundle.study.id, bundle.hash):
            self.close()
            raise ValueError(
                f"{file} holds answers to the study {row[0]!r} (hash {row[1][:12]}), not to {bundle.study.id!r} "
                f"({bundle.hash[:12]}): serve the study that was asked, or give a new database."
            )
        self.secret: str = row[2]
        self.cookie = f"participant-{self._keyed('cookie')[:8]}"  # browsers send cookies to all ports of a host
        now, clock = time.time(), time.monotonic()
        active = self._connection.execute("SELECT number, last FROM participant WHERE status = 'active'")
        self._last_seen = {number: clock - max(0, now - last) for number, last in active}  # by this process's own clock

    def close(self) -> None:
        """Close the database, with all answers in its one file."""
        self._empty_log()
        with self._lock:  # or SQLite crashes where a thread of the server is still writing, as after a signal
            self._connection.close()

    def _keyed(self, text: str) -> str:
        return hmac.new(self.secret.encode(), text.encode(), "sha256").hexdigest()

    def _empty_log(self) -> None:
        """Move all that is in the write-ahead log to the database; later, where somebody is reading."""
        with self._lock:
            busy, *_ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        self._leftover = bool(busy)

    @contextmanager
    def _transaction(self, synchronous: Literal["FULL", "NORMAL"] = "FULL") -> Iterator[sqlite3.Connection]:
        """One transaction; it survives a loss of power if it is written in full, and the end of this process anyway."""
        with self._lock:
            self._connection.execute(f"PRAGMA synchronous={synchronous}")
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def join(
        self, external: str | None = None, session: str | None = None, agent: str = "", browser: str = ""
    ) -> Participant | None:
        """A new participant, or the one who came with the same external id before, now in the given session.

        None where all places are taken. Ids of a platform are not secret: a visitor with a known id is the same person
        only from the same browser, or with the id of the session.

        The arms follow the order with the fewest participants who finished or are still taking part, among the orders
        whose arms all have a place; ties by the order of the study.

        Raises:
            RefusedError: if the person has withdrawn, or is known from another browser.
        """
        study, now = self.bundle.study, time.time()
        with self._transaction() as connection:
            if external is not None:
                asked = "SELECT 1 FROM withdrawn WHERE person = ?"
                if connection.execute(asked, (self._keyed(external),)).fetchone():
                    raise RefusedError("withdrawn")
                if known := self._find(connection, "external", external):
                    if browser != known.id and (session is None or session != known.session):
                        raise RefusedError("elsewhere")
                    session = session or known.session
                    connection.execute("UPDATE participant SET session = ? WHERE number = ?", (session, known.number))
                    return replace(known, session=session)
            rows = self._taken(connection)
            taken = [json.loads(arms) for arms, _ in rows]
            filled, begun = Counter(arm for arms in taken for arm in arms), Counter(arms[0] for arms in taken)
            orders = [
                order for order in arm_orders(study) if all(filled[arm.id] < study.assignment.people for arm in order)
            ]
            if not orders:
                return None
            arms = min(orders, key=lambda order: begun[order[0].id])
            shown = Counter(item for _, items in rows for item in json.loads(items))
            number = 1 + connection.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence").fetchone()[0]
            seed = participant_seed(study, self.bundle.key, number)
            items = choose_items(study, arms, self.bundle.key, shown, seed)
            about = (external, session, [arm.id for arm in arms], items, seed)
            new = Participant(number, secrets.token_hex(16), *about, 0, "active", now, now, agent[:300])
            values = [json.dumps(value) if isinstance(value, list) else value for value in vars(new).values()]
            connection.execute(f"INSERT INTO participant ({COLUMNS}) VALUES ({', '.join('?' * len(values))})", values)
            connection.execute("INSERT INTO event VALUES (?, ?, 'joined')", (now, number))
            self._last_seen[number] = time.monotonic()
        return new

    def _taken(self, connection: sqlite3.Connection) -> list[tuple[str, str]]:
        """Arms and items of all who finished or are still taking part, whatever happens to the clock of the machine."""
        clock, reserved = time.monotonic(), self.bundle.study.assignment.reserve_minutes
        rows = connection.execute(
            "SELECT number, status, step, arms, items FROM participant WHERE status IN ('completed', 'active')"
        )
        return [
            (arms, items)
            for number, status, step, arms, items in rows
            if status == "completed"
            or clock - self._last_seen.get(number, clock) < 60 * (reserved if step else min(reserved, CONSENT_MINUTES))
        ]

    def find(self, name: str) -> Participant | None:
        """The participant of an id; None if there is none."""
        with self._lock:
            return self._find(self._connection, "id", name)

    def _find(self, connection: sqlite3.Connection, column: str, value: str | int) -> Participant | None:
        row = connection.execute(f"SELECT {COLUMNS} FROM participant WHERE {column} = ?", (value,)).fetchone()
        return None if row is None else participant_of(row)

    def open_page(self, who: Participant, name: str) -> None:
        """Note when the current page was first shown, which is not waited for: no answer is lost with it."""
        if (who.number, who.step) in self._opened:
            return
        with self._transaction("NORMAL") as connection:
            connection.execute(
                "INSERT OR IGNORE INTO page (participant, step, name, opened) VALUES (?, ?, ?, ?)",
                (who.number, who.step, name, time.time()),
            )
        self._opened[who.number, who.step] = time.monotonic()

    def submit(
        self, who: Participant, way: list[Page], step: int, answers: Answers, client: dict[str, object]
    ) -> Outcome:
        """Store the answers to a page and advance, in one transaction.

        Returns:
            ``stored``; ``same`` or ``conflict`` for a page that was answered before, alike or otherwise; ``stale`` for
            one that is not the current one. Only ``stored`` changes anything.
        """
        now, clock = time.time(), time.monotonic()
        with self._transaction() as connection:
            current = self._find(connection, "number", who.number)
            if current is None or current.status == "withdrawn" or step > current.step:
                return "stale"
            if step < current.step or current.status != "active":
                before = _answers(connection, who.number).get(step, {})
                return "stale" if not before and answers else "same" if before == answers else "conflict"
            page, item = way[step].page, way[step].item
            following = after(self.bundle.study, way, step, answers)
            where = (who.number, step)
            rows = [(*where, item.id if item else None, name, json.dumps(value)) for name, value in answers.items()]
            connection.executemany("INSERT INTO answer VALUES (?, ?, ?, ?, ?)", rows)
            row = connection.execute("SELECT opened FROM page WHERE (participant, step) = (?, ?)", where).fetchone()
            start = self._opened.get(where)
            passed = clock - start if start is not None else now - row[0] if row else -1
            visit = (*where, page, row[0] if row else now, now, passed if passed >= 0 else None, json.dumps(client))
            connection.execute("INSERT OR REPLACE INTO page VALUES (?, ?, ?, ?, ?, ?, ?)", visit)
            connection.execute(
                "UPDATE participant SET step = ?, status = ?, last = ? WHERE number = ?", (*following, now, who.number)
            )
            if following[1] != "active":
                connection.execute("INSERT INTO event VALUES (?, ?, ?)", (now, who.number, following[1]))
            self._last_seen[who.number] = clock
        self._opened.pop((who.number, step), None)
        if self._leftover:
            self._empty_log()
        return "stored"

    def answers(self, who: Participant) -> dict[int, Answers]:
        """All answers of a participant, by step."""
        with self._lock:
            return _answers(self._connection, who.number)

    def check(self) -> None:
        """Begin and end a transaction, and see whether the disk has room for more.

        Raises:
            sqlite3.Error: if nothing can be written.
            OSError: if the disk is full.
        """
        with self._transaction() as connection:
            connection.execute("UPDATE study SET id = id")
        with tempfile.TemporaryFile(dir=self._file.parent) as file:
            file.write(bytes(ROOM))

    def withdraw(self, who: Participant) -> None:
        """Delete everything about a participant except that somebody withdrew, also from the write-ahead log.

        Only a keyed hash of the id on the platform stays, so that the person cannot take part again.
        """
        with self._transaction() as connection:
            for table in ("answer", "page", "event"):
                connection.execute(f"DELETE FROM {table} WHERE participant = ?", (who.number,))
            connection.execute(
                "UPDATE participant SET status = 'withdrawn', id = ?, external = NULL, session = NULL, agent = '', "
                "items = '[]', joined = 0, last = 0 WHERE number = ?",
                (secrets.token_hex(16), who.number),
            )
            if who.external is not None:
                connection.execute("INSERT OR IGNORE INTO withdrawn VALUES (?)", (self._keyed(who.external),))
            connection.execute("INSERT INTO event VALUES (?, ?, 'withdrawn')", (time.time(), who.number))
        self._empty_log()


def _answers(connection: sqlite3.Connection, number: int) -> dict[int, Answers]:
    asked = "SELECT step, question, value FROM answer WHERE participant = ? ORDER BY rowid"
    by_step: dict[int, Answers] = {}
    for step, question, value in connection.execute(asked, (number,)):
        by_step.setdefault(step, {})[question] = json.loads(value)
    return by_step
