"""Platforms that send and pay participants: what their links carry, and how participants get back to them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from protometry.studies.flow import Status
from protometry.studies.study import Platform

PROLIFIC = "https://app.prolific.com/"
PROLIFIC_CODE = f"{PROLIFIC}submissions/complete?cc="
UNPAID = ("declined", "withdrawn")
MTURK = {False: "https://www.mturk.com", True: "https://workersandbox.mturk.com"}  # that answers are submitted to
MTURK_PAGES = "https://worker.mturk.com https://workersandbox.mturk.com"  # that show the study in a frame
PREVIEW = "ASSIGNMENT_ID_NOT_AVAILABLE"
ID = re.compile(r"[A-Za-z0-9]{1,64}")


@dataclass(frozen=True)
class Arrival:
    """Who comes from where.

    Attributes:
        external: id of the person on the platform; None for a study without a platform.
        session: id of this participation there.
        is_preview: whether the person only looks at the study before accepting it.
    """

    external: str | None = None
    session: str | None = None
    is_preview: bool = False


@dataclass(frozen=True)
class WayBack:
    """How a participant gets back to the platform: a link, or a form that is sent to it."""

    link: str = ""
    action: str = ""
    fields: dict[str, str] = field(default_factory=dict)


def arrival(platform: Platform, query: Mapping[str, str]) -> Arrival | None:
    """Read who comes from the query of the link; None if the link is not one of the platform.

    Args:
        platform: of the study.
        query: such as ``PROLIFIC_PID`` and ``SESSION_ID``, or ``workerId``, ``assignmentId`` and ``turkSubmitTo``.
    """
    if platform.kind == "local":
        return Arrival()
    person, session = ("PROLIFIC_PID", "SESSION_ID") if platform.kind == "prolific" else ("workerId", "assignmentId")
    if platform.kind == "mturk":
        if query.get(session) == PREVIEW:
            return Arrival(is_preview=True)
        if query.get("turkSubmitTo", "").rstrip("/") != MTURK[platform.sandbox] or not _id(query.get(session)):
            return None
    external = _id(query.get(person))
    return Arrival(external, _id(query.get(session))) if external else None


def query(platform: Platform, person: str) -> dict[str, str]:
    """What the platform would add to the link of a person who has accepted the task."""
    if platform.kind == "mturk":
        return {"workerId": person, "assignmentId": f"assignment{person}", "turkSubmitTo": MTURK[platform.sandbox]}
    return {"PROLIFIC_PID": person, "SESSION_ID": f"session{person}"} if platform.kind == "prolific" else {}


def way_back(platform: Platform, status: Status, session: str | None) -> tuple[str, WayBack]:
    """The completion code of a participant, empty if there is none, and the way back to the platform."""
    code = {"completed": platform.completed, "screened": platform.screened}.get(status, "")
    if platform.kind == "prolific" and (code or status in UNPAID):
        return code, WayBack(link=PROLIFIC_CODE + quote(code) if code else PROLIFIC)
    if platform.kind == "mturk" and session and status in ("completed", "screened"):
        fields = {"assignmentId": session, "code": code or status}
        return code, WayBack(action=f"{MTURK[platform.sandbox]}/mturk/externalSubmit", fields=fields)
    return code, WayBack()


def security_policy(platform: Platform) -> str:
    """Content-Security-Policy of all pages: nothing from elsewhere, and in no frame but one of MTurk."""
    mturk = platform.kind == "mturk"
    frames, forms = (MTURK_PAGES, f"'self' {MTURK[platform.sandbox]}") if mturk else ("'none'", "'self'")
    return f"default-src 'self'; frame-ancestors {frames}; form-action {forms}; base-uri 'none'"


def _id(value: str | None) -> str | None:
    return value if value is not None and ID.fullmatch(value) else None
