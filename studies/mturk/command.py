"""``python -m studies mturk``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from studies.bundle import Bundle, load_bundle
from studies.mturk.connection import Turk, assignments_of, connected, launched
from studies.mturk.launch import launch
from studies.mturk.pay import pay


def command(
    action: Literal["launch", "status", "pay"], folder: Path, public_host: str | None = None, days: int = 7,
    participants: Path | None = None, dry_run: bool = False,
) -> str:  # fmt: skip
    """Launch a study on Mechanical Turk, say how far it is, or pay those who took part.

    It is the sandbox, unless the study says `sandbox: false`. Credentials are those of boto3, such as AWS_PROFILE.

    Args:
        action: launch the study as one task (HIT) with an assignment for each place; its status; or pay: approve the
            assignments of those who are paid, and pay their bonuses.
        folder: the bundle.
        public_host: name under which participants reach the study, as for serve; to launch it.
        days: how long the task is offered.
        participants: table of the analysis with pay and bonus; `analysis/participants.csv` in the bundle if None.
        dry_run: print the requests that would change something, and send none of them.
    """
    bundle = load_bundle(folder)
    platform = bundle.study.platform
    if platform.kind != "mturk":
        raise ValueError(f"{folder}/study.json: the platform is {platform.kind}, not mturk.")
    with connected(platform.sandbox, dry_run) as turk:
        if action == "launch":
            return launch(turk, bundle, public_host, days)
        if action == "status":
            return status(turk, bundle)
        return pay(turk, bundle, participants or folder / "analysis/participants.csv")


def status(turk: Turk, bundle: Bundle) -> str:
    """How far the task is, and a line for each assignment that was handed in."""
    facts = launched(bundle)
    hit = turk.client.get_hit(HITId=facts["hit"])["HIT"]
    lines = [
        f"HIT {facts['hit']}: {hit['HITStatus']}, {hit['MaxAssignments']} assignments, "
        f"{hit['NumberOfAssignmentsAvailable']} available, {hit['NumberOfAssignmentsPending']} being worked on"
    ]
    for one in assignments_of(turk, facts):
        lines.append(f"{one['AssignmentId']}  {one['WorkerId']}  {one['AssignmentStatus']}  {one['SubmitTime']}")
    return "\n".join(lines)
