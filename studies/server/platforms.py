"""Prolific, which sends and pays participants: what its links carry, and how participants get back to it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

from protometry.studies.flow import Status
from protometry.studies.study import Platform

PROLIFIC = "https://app.prolific.com/"
PROLIFIC_CODE = f"{PROLIFIC}submissions/complete?cc="
UNPAID = ("declined", "withdrawn")
ID = re.compile(r"[A-Za-z0-9]{1,64}")


class Arrival(NamedTuple):
    """Ids of a person and of this participation on the platform; None in a study without a platform."""

    external: str | None = None
    session: str | None = None


def arrival(platform: Platform, query: Mapping[str, str]) -> Arrival | None:
    """Read who comes from the query of the link; None if the link is not one of the platform."""
    if platform.kind == "local":
        return Arrival()
    external = _id(query.get("PROLIFIC_PID"))
    return Arrival(external, _id(query.get("SESSION_ID"))) if external else None


def query(platform: Platform, person: str) -> dict[str, str]:
    """What the platform would add to the link of a person who has accepted the task."""
    return {"PROLIFIC_PID": person, "SESSION_ID": f"session{person}"} if platform.kind == "prolific" else {}


def way_back(platform: Platform, status: Status) -> tuple[str, str]:
    """The completion code of a participant and the link back to the platform, each empty if there is none."""
    code = {"completed": platform.completed, "screened": platform.screened}.get(status, "")
    if platform.kind == "local":
        return code, ""
    if code:
        return code, PROLIFIC_CODE + quote(code)
    return "", PROLIFIC if status in UNPAID else ""


def _id(value: str | None) -> str | None:
    return value if value is not None and ID.fullmatch(value) else None
