"""A study as one task of Mechanical Turk, offered once, to those who meet its requirements."""

from __future__ import annotations

import json
from typing import Any
from xml.sax.saxutils import escape

from studies.bundle import Bundle
from studies.mturk.connection import Turk, record_of
from studies.placeholders import placeholders
from studies.study import Platform
from studies.texts import texts

WORKERS = {False: "https://worker.mturk.com", True: "https://workersandbox.mturk.com"}
DAY = 86400  # seconds
APPROVED_AFTER = 7 * DAY  # by Mechanical Turk itself
LOCALE, APPROVAL, APPROVED = "00000000000000000071", "000000000000000000L0", "00000000000000000040"  # qualifications
QUESTION = (
    '<ExternalQuestion xmlns="http://mechanicalturk.amazonaws.com/AWSMechanicalTurkDataSchemas/2006-07-14/'
    'ExternalQuestion.xsd"><ExternalURL>{url}</ExternalURL><FrameHeight>0</FrameHeight></ExternalQuestion>'
)


def launch(turk: Turk, bundle: Bundle, public_host: str | None, days: int) -> str:
    """Offer the study as one task, once.

    Raises:
        ValueError: if it was launched before, or cannot be.
    """
    record = record_of(bundle)
    if not public_host:
        raise ValueError("Expected `--public_host`, the name under which participants reach the study, as for serve.")
    if days < 1:
        raise ValueError(f"Expected argument `days` to be at least 1, but got {days}.")
    if unfilled := placeholders(bundle):
        raise ValueError(f"{unfilled}: fill them in before anybody is asked.")
    if record.exists():
        raise ValueError(f"{record}: the study was launched before; it is not launched twice. See `mturk status`.")
    if turk.dry_run:
        return f"Nothing was sent. {_offer(turk, bundle, public_host, days)[1]}"
    record.touch(exist_ok=False)  # before anything is sent, so that two launches cannot meet
    try:
        facts, told = _offer(turk, bundle, public_host, days)
    except BaseException:
        record.unlink()
        raise
    record.write_text(json.dumps(facts, indent=1) + "\n", "utf-8")
    return f"{told}; {record} holds its id."


def reward_of(platform: Platform) -> str:
    """Pay of everybody in US dollars."""
    return f"{platform.wage * platform.minutes / 60:.2f}"


def requirements(platform: Platform, took_part: str) -> list[dict[str, Any]]:
    """Who may see and accept the task.

    Args:
        platform: of the study.
        took_part: id of the qualification of those who took part before; empty for none.
    """
    locales = [dict(zip(("Country", "Subdivision"), name.split("-"), strict=False)) for name in platform.locales]
    at_least = [(APPROVAL, platform.min_approval), (APPROVED, platform.min_approved)]
    found: list[dict[str, Any]] = []
    if locales:
        found.append({"QualificationTypeId": LOCALE, "Comparator": "In", "LocaleValues": locales})
    found += [
        {"QualificationTypeId": name, "Comparator": "GreaterThanOrEqualTo", "IntegerValues": [least]}
        for name, least in at_least
        if least
    ]
    if took_part:
        found.append({"QualificationTypeId": took_part, "Comparator": "DoesNotExist"})
    return [one | {"ActionsGuarded": "DiscoverPreviewAndAccept"} for one in found]


def _offer(turk: Turk, bundle: Bundle, public_host: str, days: int) -> tuple[dict[str, str], str]:
    study = bundle.study
    say, platform, assignment = texts(study.language)["mturk"], study.platform, study.assignment
    took_part = _qualification(turk, platform.took_part, say["took_part"]) if platform.took_part else ""
    reply = turk.change(
        "create_hit",
        Title=study.title,
        Description=say["description"],
        Keywords=say["keywords"],
        Reward=reward_of(platform),
        MaxAssignments=assignment.people * len(study.arms) // assignment.arms,
        LifetimeInSeconds=days * DAY,
        AssignmentDurationInSeconds=round(60 * (platform.minutes + assignment.reserve_minutes)),
        AutoApprovalDelayInSeconds=APPROVED_AFTER,
        Question=QUESTION.format(url=escape(f"https://{public_host}/join")),
        QualificationRequirements=requirements(platform, took_part),
        UniqueRequestToken=bundle.hash,
    )
    hit = reply.get("HIT", {})
    group = f"{WORKERS[platform.sandbox]}/mturk/preview?groupId={hit.get('HITGroupId', '…')}"
    return {"hit": hit.get("HITId", ""), "took_part": took_part}, f"Workers see the task at {group}"


def _qualification(turk: Turk, name: str, description: str) -> str:
    """Id of the qualification of a name, which is made if there is none."""
    known = turk.all(
        "list_qualification_types", "QualificationTypes", Query=name, MustBeRequestable=False, MustBeOwnedByCaller=True
    )
    found = [one["QualificationTypeId"] for one in known if one["Name"] == name]
    if found:
        return str(found[0])
    request = {"Name": name, "Description": description, "QualificationTypeStatus": "Active"}
    made = turk.change("create_qualification_type", **request).get("QualificationType", {})
    return str(made.get("QualificationTypeId", f"(the new qualification {name})"))
