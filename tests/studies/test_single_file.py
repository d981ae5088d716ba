"""A study without a server: the files that are written, and the answers that are saved and read back."""

from __future__ import annotations

import json
import re
import zlib

import pytest

from protometry.studies.analysis.analyse import analyse
from protometry.studies.participants import steps_of
from protometry.studies.server.pages import fields_of
from protometry.studies.simulation.observer import Observer
from protometry.studies.simulation.simulate import simulate
from protometry.studies.single_file.read import read_folder
from protometry.studies.single_file.write import first_participants, write_files
from tests.studies.toy import make_bundle

PEOPLE = 4


def saved_by(bundle, who, observer):
    """What the browser of a simulated participant saves."""
    pages = []
    for index, step in enumerate(steps_of(bundle.study, who)):
        if step.page not in ("quiz_again", "result"):
            key = bundle.key.items[step.item.id] if step.item else None
            fields = fields_of(observer.respond(bundle.study, step, key, who.seed))
            own = {"step": index, "seconds": 7, "focus_losses": 0, "helps": 0, "javascript": 1}
            pages.append([[name, str(value)] for name, value in {**own, **fields}.items()])
    about = {"schema": 1, "study": bundle.study.id, "hash": bundle.hash, "number": who.number}
    return {**about, "agent": "test", "began": 1.0, "at": 0, "end": "completed", "pages": pages}


def write(file, record):
    text = json.dumps(record)
    file.write_text(json.dumps({"record": text, "checksum": zlib.crc32(text.encode())}), "utf-8")


def with_answers(folder, task, form):
    """A study with the saved answers of its participants."""
    bundle = make_bundle(folder / "study", task, form, people=PEOPLE)
    (folder / "answers").mkdir()
    for who in first_participants(bundle, PEOPLE):
        write(folder / f"answers/{who.number}.json", saved_by(bundle, who, Observer("noisy")))
    return bundle


@pytest.fixture
def answered(tmp_path):
    return with_answers(tmp_path, "agreement", "units")


@pytest.mark.parametrize(
    ("task", "form"), [("agreement", "units"), ("distinction", "heatmap"), ("distinction", "tree")]
)
def test_results_equal_those_of_the_served_study(tmp_path, task, form):
    """Except for the page with the result, which needs the key, and for times."""
    bundle = with_answers(tmp_path, task, form)
    assert simulate(bundle.folder, tmp_path / "a.sqlite", Observer("noisy"), PEOPLE) == PEOPLE
    served = analyse(bundle.folder, tmp_path / "a.sqlite", tmp_path / "served")["results"]["all"]["main"]
    single = analyse(bundle.folder, out=tmp_path / "single", answers=tmp_path / "answers")["results"]["all"]["main"]
    others = {"study/understanding_results", "study/understanding_change", "study/minutes"}
    assert single.keys() == served.keys()
    assert {key for key in served if single[key] != served[key]} == others
    assert single["study/understanding_results"]["reason"] == "nobody answered"
    assert single["study/understanding_results"]["value"] is None


def test_a_file_holds_all_pages_and_nothing_of_the_key(tmp_path):
    bundle = make_bundle(tmp_path / "study", "agreement", "units", people=PEOPLE)
    files = write_files(bundle, tmp_path / "files", PEOPLE)
    assert [file.name for file in files] == [f"participant-00{number}.html" for number in range(1, PEOPLE + 1)]
    (who, *_) = first_participants(bundle, 1)
    text = files[0].read_text("utf-8")
    assert text.count('<template class="step">') == len(steps_of(bundle.study, who)) - 1
    assert not re.search(r"https?://", text)
    for item in who.items:
        key = bundle.key.items[item]
        assert key.image not in text
        assert not [score for score in key.scores.values() if f"{score:.4f}"[1:] in text]
    other = next(item for item in bundle.study.arms[0].items if item.id not in who.items)
    assert other.photo not in text
    with pytest.raises(ValueError, match="is not empty"):
        write_files(bundle, tmp_path / "files", PEOPLE)
    for nobody in (0, -1):
        with pytest.raises(ValueError, match=f"`number` to be at least 1, but got {nobody}"):
            write_files(bundle, tmp_path / "more", nobody)
        with pytest.raises(ValueError, match=f"`number` to be at least 1, but got {nobody}"):
            simulate(bundle.folder, tmp_path / "a.sqlite", Observer(), nobody)
    with pytest.raises(ValueError, match=f"places for {PEOPLE} participants, not for {PEOPLE + 1}"):
        write_files(bundle, tmp_path / "more", PEOPLE + 1)


def change_answer(record):
    page = next(page for page in record["pages"] if any(name.startswith("similarity.") for name, _ in page))
    page[-1][1] = "9"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda record: record.update(schema=2), "schema 2 cannot be read"),
        (lambda record: record.update(hash="0" * 64), "is of the study 'toy' .000000000000., not of"),
        (lambda record: record.update(number=3), "3.json: participant 3 is in 2.json already"),
        (lambda record: record.update(number=0), "`number` of .*2.json to be at least 1"),
        (lambda record: record.update(number=99), "places for 4 participants, not for 99"),
        (lambda record: record.pop("agent"), "`agent` of .*2.json is missing"),
        (lambda record: record["pages"][0].append(["score"]), "2.json, page 1: a field is not a name with a value"),
        (lambda record: record["pages"].pop(3), "page 4 .* is step 4, but 3 was expected"),
        (lambda record: record["pages"][0].append(["score", "1"]), "a field that it does not have: score"),
        (change_answer, r"page \d+ \(item\), .*: This answer is not one of those offered"),
        (lambda record: record["pages"].append(record["pages"][0]), "continues after its end"),
    ],
)
def test_what_cannot_be_used_is_said_with_its_file(tmp_path, answered, change, message):
    record = json.loads(json.loads((tmp_path / "answers/2.json").read_text())["record"])
    change(record)
    write(tmp_path / "answers/2.json", record)
    with pytest.raises(ValueError, match=message):
        read_folder(answered, tmp_path / "answers")


def test_files_that_were_changed_cut_short_or_are_not_there(tmp_path, answered):
    file = tmp_path / "answers/2.json"
    text = file.read_text("utf-8")
    for broken, message in (
        (text.replace("noisy", "x").replace("simulated", "Simulated"), "checksum"),
        (text[:-20], "was not saved by a study"),
        ("[]", "was not saved by a study"),
    ):
        file.write_text(broken, "utf-8")
        with pytest.raises(ValueError, match=message):
            read_folder(answered, tmp_path / "answers")
    with pytest.raises(ValueError, match="holds no saved answers"):
        read_folder(answered, tmp_path)


def test_who_stopped_is_there_but_not_analysed(tmp_path, answered):
    record = json.loads(json.loads((tmp_path / "answers/2.json").read_text())["record"])
    write(tmp_path / "answers/2.json", record | {"pages": record["pages"][:4]})
    people, visits = read_folder(answered, tmp_path / "answers")
    assert [who.status for who in people] == ["completed", "active", "completed", "completed"]
    assert sum(visit.number == 2 for visit in visits) == 4
    assert analyse(answered.folder, answers=tmp_path / "answers")["participants"]["analysed"] == 3
