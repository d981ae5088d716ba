"""Requests to Mechanical Turk, or to its sandbox, and the task that a study was launched as."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from studies.bundle import Bundle

ENDPOINTS = {
    False: "https://mturk-requester.us-east-1.amazonaws.com",
    True: "https://mturk-requester-sandbox.us-east-1.amazonaws.com",
}
ATTEMPTS = 5  # at each request, in all


@dataclass
class Turk:
    """What is asked of Mechanical Turk.

    Attributes:
        client: of boto3.
        dry_run: whether requests that change something are printed only.
    """

    client: Any
    dry_run: bool

    def change(self, operation: str, **request: Any) -> dict[str, Any]:
        """Print a request that changes something, and send it; an empty reply in a dry run."""
        print(f"{operation} {json.dumps(request)}", flush=True)
        reply: dict[str, Any] = {} if self.dry_run else getattr(self.client, operation)(**request)
        return reply

    def all(self, operation: str, name: str, **request: Any) -> list[dict[str, Any]]:
        """What all pages of a list hold under a name."""
        found: list[dict[str, Any]] = []
        following: dict[str, str] = {}
        while True:
            reply = getattr(self.client, operation)(**request, **following, MaxResults=100)
            found += reply.get(name, [])
            if not reply.get("NextToken"):
                return found
            following = {"NextToken": reply["NextToken"]}


@contextmanager
def connected(sandbox: bool, dry_run: bool) -> Iterator[Turk]:
    """Mechanical Turk, with the credentials that boto3 finds.

    Raises:
        OSError: if a request fails.
    """
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    retries = Config(retries={"mode": "standard", "total_max_attempts": ATTEMPTS})
    try:
        yield Turk(boto3.client("mturk", "us-east-1", endpoint_url=ENDPOINTS[sandbox], config=retries), dry_run)
    except (BotoCoreError, ClientError) as error:
        again = "Give the command again: what was done is not repeated."
        raise OSError(f"{ENDPOINTS[sandbox]}: {error} {again}") from None


def record_of(bundle: Bundle) -> Path:
    """The file that says as what a study was launched."""
    return bundle.folder / ("mturk-sandbox.json" if bundle.study.platform.sandbox else "mturk.json")


def launched(bundle: Bundle) -> dict[str, str]:
    """Ids of the task and of the qualification of those who took part.

    Raises:
        ValueError: if the study was not launched.
    """
    record = record_of(bundle)
    if not record.is_file():
        raise ValueError(f"{record} is missing: launch the study first, with `mturk launch {bundle.folder}`.")
    text = record.read_text("utf-8")
    if not text:
        raise ValueError(
            f"{record} is empty, since the launch was cut short. Delete it and launch again: Mechanical Turk will say "
            "if it has the task already."
        )
    facts: dict[str, str] = json.loads(text)
    return facts


def assignments_of(turk: Turk, facts: dict[str, str]) -> list[dict[str, Any]]:
    """Everything that was handed in."""
    return turk.all("list_assignments_for_hit", "Assignments", HITId=facts["hit"])
