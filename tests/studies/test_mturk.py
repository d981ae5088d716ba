"""Mechanical Turk, whose replies are kept as its API reference gives them: what is sent once, and not in a dry run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from studies.__main__ import main
from studies.analysis.tables import PERSON_COLUMNS
from studies.study import Platform
from tests.studies.toy import make_bundle

REPLIES = json.loads((Path(__file__).parent / "mturk_replies.json").read_text("utf-8"))
LAUNCH = ["--public_host", "study.test"]
PEOPLE = [  # external, session, status, pay, bonus
    ("AW1", "3COMPLETED", "completed", 3.0, 1.0),
    ("AW2", "3SCREENED", "screened", 3.0, 0.0),
    ("AW3", "3BEFORE", "completed", 3.0, 1.0),
    ("AW5", "3REJECTED", "completed", 3.0, 1.0),
    ("AW6", "3NEVER", "completed", 3.0, 1.0),  # did not press the last button
    ("AW7", "3LEFT", "active", 0.0, 0.0),
    ("", "", "withdrawn", 0.0, 0.0),
]


class ClientError(Exception):
    """As botocore calls it."""


class Fake:
    """A client that answers with the replies, page by page, and knows what it was asked to do."""

    def __init__(self):
        self.replies, self.sent, self.fails = json.loads(json.dumps(REPLIES)), [], None

    def __getattr__(self, operation):
        def call(**request):
            if operation == self.fails:
                raise ClientError("no funds.")
            if not operation.startswith(("list", "get")):
                self.sent.append((operation, request))
            if operation == "approve_assignment":
                for one in [one for page in self.replies["list_assignments_for_hit"] for one in page["Assignments"]]:
                    if one["AssignmentId"] == request["AssignmentId"]:
                        one["AssignmentStatus"] = "Approved"
            if operation == "send_bonus":
                self.replies["list_bonus_payments"][0]["BonusPayments"].append(request)
            if operation == "associate_qualification_with_worker":
                self.replies["list_workers_with_qualification_type"][0]["Qualifications"].append(request)
            return self.replies[operation]["NextToken" in request]

        return call


@pytest.fixture
def fake(monkeypatch):
    """In place of boto3, which the tests do not need."""
    fake = Fake()

    def client(*arguments, **options):
        fake.options = options
        return fake

    monkeypatch.setitem(sys.modules, "boto3", SimpleNamespace(client=client))
    monkeypatch.setitem(sys.modules, "botocore.config", SimpleNamespace(Config=lambda **options: options))
    errors = SimpleNamespace(BotoCoreError=ClientError, ClientError=ClientError)
    monkeypatch.setitem(sys.modules, "botocore.exceptions", errors)
    return fake


@pytest.fixture
def study(tmp_path):
    """A study for people in two places with a good record, and its table of participants."""
    platform = Platform(
        *("mturk", True, "C1", "S1"), bonus=1.0, locales=["US", "US-NY"], min_approval=95, min_approved=100,
        took_part="took-part",
    )  # fmt: skip
    folder = make_bundle(tmp_path / "study", platform=platform).folder
    (folder / "analysis").mkdir()
    write(folder, PEOPLE)
    return folder


def write(folder, people):
    rows = [dict(zip(("external", "session", "status", "pay", "bonus"), one, strict=True)) for one in people]
    lines = [",".join(str(row.get(name, "")) for name in PERSON_COLUMNS) for row in rows]
    (folder / "analysis/participants.csv").write_text("\n".join([",".join(PERSON_COLUMNS), *lines]) + "\n", "utf-8")


def run(action, folder, *more):
    return main(["mturk", action, str(folder), *more])


def test_a_study_is_launched_once_with_its_requirements(fake, study, capsys):
    assert run("launch", study, *LAUNCH, "--dry_run", "true") == 0
    dry = capsys.readouterr().out
    assert (fake.sent, (study / "mturk-sandbox.json").exists()) == ([], False)
    assert run("launch", study, *LAUNCH) == 0
    assert fake.options["endpoint_url"] == "https://mturk-requester-sandbox.us-east-1.amazonaws.com"
    assert fake.options["config"] == {"retries": {"mode": "standard", "total_max_attempts": 5}}
    assert [operation for operation, _ in fake.sent] == ["create_qualification_type", "create_hit"]
    request = fake.sent[1][1]
    assert (request["MaxAssignments"], request["Reward"], request["AssignmentDurationInSeconds"]) == (50, "3.00", 4500)
    assert "<ExternalURL>https://study.test/join</ExternalURL>" in request["Question"]
    guarded = {"ActionsGuarded": "DiscoverPreviewAndAccept"}
    assert request["QualificationRequirements"] == [
        {
            "QualificationTypeId": "00000000000000000071",
            "Comparator": "In",
            "LocaleValues": [{"Country": "US"}, {"Country": "US", "Subdivision": "NY"}],
        }
        | guarded,
        *(
            {"QualificationTypeId": name, "Comparator": "GreaterThanOrEqualTo", "IntegerValues": [least]} | guarded
            for name, least in (("000000000000000000L0", 95), ("00000000000000000040", 100))
        ),
        {"QualificationTypeId": "3QUALNEW", "Comparator": "DoesNotExist"} | guarded,
    ]
    printed = json.loads(dry.splitlines()[1].removeprefix("create_hit "))  # all but the id that is new
    printed["QualificationRequirements"][-1]["QualificationTypeId"] = "3QUALNEW"
    assert printed == request
    record = (study / "mturk-sandbox.json").read_text("utf-8")
    assert json.loads(record) == {"hit": "3HIT", "took_part": "3QUALNEW"}
    capsys.readouterr()
    assert run("launch", study, *LAUNCH) == 1
    assert "mturk-sandbox.json: the study was launched before" in capsys.readouterr().err
    assert (len(fake.sent), (study / "mturk-sandbox.json").read_text("utf-8")) == (2, record)
    assert run("status", study) == 0
    told = capsys.readouterr().out
    assert "50 assignments, 43 available, 2 being worked on" in told
    assert told.count("Submitted") == 3


def test_a_launch_that_fails_may_be_repeated(fake, study, capsys):
    fake.fails = "create_hit"
    assert run("launch", study, *LAUNCH) == 1
    assert "no funds. Give the command again" in capsys.readouterr().err
    fake.fails = None
    assert run("launch", study, *LAUNCH) == 0


def test_who_finished_is_paid_once(fake, study, capsys):
    """One who finished and one who was screened are approved, and one bonus is paid; a second time, nothing is."""
    run("launch", study, *LAUNCH)
    del fake.sent[:]
    capsys.readouterr()
    assert run("pay", study, "--dry_run", "true") == 0
    dry = capsys.readouterr().out
    assert fake.sent == []
    assert run("pay", study) == 0
    told = capsys.readouterr().out
    assert dry.splitlines()[:-1] == told.splitlines()[:-1]
    assert dry.splitlines()[-1] == f"In a dry run: {told.splitlines()[-1]}"
    approved = [request["AssignmentId"] for operation, request in fake.sent if operation == "approve_assignment"]
    assert approved == ["3COMPLETED", "3SCREENED"]
    ((bonus,),) = [[request for operation, request in fake.sent if operation == "send_bonus"]]
    assert (bonus["WorkerId"], bonus["AssignmentId"], bonus["BonusAmount"]) == ("AW1", "3COMPLETED", "1.00")
    assert len(bonus["UniqueRequestToken"]) == 64
    marked = [one["WorkerId"] for operation, one in fake.sent if operation == "associate_qualification_with_worker"]
    assert marked == ["AW1", "AW2", "AW4", "AW5"]
    assert "3WITHDRAWN of AW4 was handed in, but has no pay" in told
    assert "3NEVER of AW6 has pay" in told
    number = len(fake.sent)
    assert run("pay", study) == 0
    assert len(fake.sent) == number


@pytest.mark.parametrize(
    ("people", "message"),
    [
        ([("AW1", "3COMPLETED", "completed", 5.0, 0.0)], "the pay is 5.00, but the task pays 3.00"),
        ([PEOPLE[0], PEOPLE[0]], "3COMPLETED of AW1 is there twice"),
    ],
)
def test_a_table_of_another_study_pays_nobody(fake, study, capsys, people, message):
    run("launch", study, *LAUNCH)
    del fake.sent[:]
    write(study, people)
    assert run("pay", study) == 1
    assert message in capsys.readouterr().err
    assert fake.sent == []


def test_what_cannot_be_done_is_one_line(study, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "boto3", None)  # as if it were not installed
    assert run("status", study) == 1
    assert capsys.readouterr().err == 'error: boto3 is not installed: pip install -e ".[mturk]"\n'
    make_bundle(tmp_path / "local")
    assert run("status", tmp_path / "local") == 1
    assert "the platform is local, not mturk" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"`platform.min_approval` can be asked for on mturk only; on prolific"):
        make_bundle(tmp_path / "prolific", platform=Platform("prolific", min_approval=95))
