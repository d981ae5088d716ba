"""Everybody who finished is approved, and every bonus is paid once."""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path

from run_folder.messages import counted
from studies.bundle import Bundle
from studies.mturk.connection import Turk, assignments_of, launched
from studies.mturk.launch import reward_of
from studies.texts import texts


def pay(turk: Turk, bundle: Bundle, table: Path) -> str:
    """Approve what is not approved yet, and pay every bonus once.

    Raises:
        ValueError: if the table is missing or pays something else than the task.
    """
    facts, rows = launched(bundle), _paid(table, reward_of(bundle.study.platform))
    assignments = {(one["WorkerId"], one["AssignmentId"]): one for one in assignments_of(turk, facts)}
    done = {one["AssignmentId"] for one in turk.all("list_bonus_payments", "BonusPayments", HITId=facts["hit"])}
    say, approved, bonuses = texts(bundle.study.language)["mturk"], 0, 0
    for worker, name in sorted(rows.keys() & assignments.keys()):
        state, bonus = assignments[worker, name]["AssignmentStatus"], rows[worker, name]
        if state == "Submitted":
            turk.change("approve_assignment", AssignmentId=name, RequesterFeedback=say["approved"])
            approved += 1
        if bonus > 0 and name not in done and state != "Rejected":
            token = hashlib.sha256(f"{bundle.hash} {name} bonus".encode()).hexdigest()
            about = {"WorkerId": worker, "AssignmentId": name, "Reason": say["bonus"], "UniqueRequestToken": token}
            turk.change("send_bonus", **about, BonusAmount=f"{bonus:.2f}")
            bonuses += 1
    if facts["took_part"]:
        _remember(turk, facts["took_part"], {worker for worker, _ in assignments})
    open_ones = {key for key, one in assignments.items() if one["AssignmentStatus"] == "Submitted"}
    lines = [
        f"{name} of {worker} was handed in, but has no pay in {table}." for worker, name in open_ones - rows.keys()
    ]
    lines += [
        f"{name} of {worker} has pay in {table}, but was not handed in." for worker, name in rows.keys() - assignments
    ]
    told = f"{counted(approved, 'assignment')} approved, {counted(bonuses, 'bonus payment')} sent."
    return "\n".join([*sorted(lines), f"In a dry run: {told}" if turk.dry_run else told])


def _remember(turk: Turk, qualification: str, workers: set[str]) -> None:
    """Give everybody who took part the qualification that excludes them from now on."""
    known = turk.all(
        "list_workers_with_qualification_type", "Qualifications", QualificationTypeId=qualification, Status="Granted"
    )
    for worker in sorted(workers - {one["WorkerId"] for one in known}):
        turk.change(
            "associate_qualification_with_worker", QualificationTypeId=qualification, WorkerId=worker, IntegerValue=1,
            SendNotification=False,
        )  # fmt: skip


def _paid(table: Path, reward: str) -> dict[tuple[str, str], float]:
    """Bonus of everybody who is paid, by worker and assignment."""
    if not table.is_file():
        raise ValueError(f"{table} is missing: run `python -m studies analyse` first, or give `participants`.")
    found: dict[tuple[str, str], float] = {}
    with table.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            key, given = (row["external"], row["session"]), float(row["pay"] or 0)
            if not given:
                continue  # did not finish
            if f"{given:.2f}" != reward:
                who = f"{table}, participant {row['participant']}"
                raise ValueError(f"{who}: the pay is {given:.2f}, but the task pays {reward}.")
            if key in found:
                raise ValueError(f"{table}: {key[1]} of {key[0]} is there twice.")
            found[key] = float(row["bonus"] or 0)
    return found
