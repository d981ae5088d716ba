"""Bundles: the same bytes from the same study, and one clear line for everything that could not be run."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from protometry.studies.bundle import load_bundle, read_consent, write_bundle
from protometry.studies.records import read
from protometry.studies.study import Assignment, Study
from tests.studies.toy import TASKS, make_bundle


@pytest.mark.parametrize("form", ["heatmap", "units", "tree", "none"])
@pytest.mark.parametrize("task", TASKS)
def test_bundles_are_read_back_and_repeatable(tmp_path, task, form):
    first = make_bundle(tmp_path / "first", task, form)
    assert (load_bundle(tmp_path / "first"), make_bundle(tmp_path / "second", task, form).hash) == (first, first.hash)
    assert first.media() == {file.name for file in (tmp_path / "first/media").iterdir()}
    assert (tmp_path / "first/key.json").stat().st_mode & 0o777 == 0o600


def change(folder: Path, file: str, path: list[Any], value: Any) -> None:
    """Change one value of a JSON file; None deletes it."""
    content = json.loads((folder / file).read_text("utf-8"))
    place = content
    for part in path[:-1]:
        place = place[part]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    (folder / file).write_text(json.dumps(content), "utf-8")


ARM = ["arms", 0]
ITEM = [*ARM, "items", 0]


@pytest.mark.parametrize(
    ("file", "path", "value", "message"),
    [
        ("study.json", ["task"], "vote", r"`task` of study\.json to be .*'distinction', but got 'vote'"),
        ("study.json", ["sed"], 1, "`sed` of study.json is not a known key"),
        ("study.json", ["title"], None, "`title` of study.json is missing"),
        ("study.json", ["seed"], 1.5, "`seed` of study.json to be a valid integer, but got 1.5"),
        ("study.json", [*ITEM, "photo"], "../key.json", r"items\[0\]\.photo` .* but got '\.\./key\.json'"),
        ("study.json", [*ITEM, "photo"], f"{'0' * 64}.png", "media/0{64}.png: is missing"),
        ("study.json", [*ITEM, "id"], "i1", "the item id 'i1' is used 2 times"),
        ("study.json", [*ITEM, "id"], "<b>", r"items\[0\]\.id` .* but got '<b>'"),
        ("study.json", [*ITEM, "options", 3], None, "item i0: has 3 options, but needs 4"),
        ("study.json", [*ITEM, "options", 0, "pictures"], [], "option o0 has 0 maps"),
        ("study.json", [*ITEM, "attention"], 2, "item i0: checks attention, and so belongs to `checks`"),
        ("study.json", [*ITEM, "attention"], 6, "asks for the answer 6, which is not on the scale"),
        ("study.json", ["assignment", "right"], 5, "has 4 items with a right prediction, but a participant sees 5"),
        ("study.json", ["assignment", "arms"], 2, "a participant cannot see 2 of 1 arms"),
        ("study.json", ["assignment", "by"], "forms", "has 4 items with a right prediction, but a participant sees 2"),
        ("study.json", [*ARM, "accuracy"], 0, "accuracy` of study.json to be greater than 0, but got 0"),
        ("study.json", [*ARM, "preview"], [], "the preview needs one example"),
        ("study.json", [*ARM, "rating"], "first_disagreement", "only be requested in agreement with a tree"),
        ("study.json", ["schema"], 2, "schema 2 cannot be read"),
        ("study.json", ["arms"], [], "`arms` of study.json to have at least 1 item"),
        (
            *("study.json", ["quality", "family"], ["main/study/distinction_totl"]),
            r"'main/study/distinction_totl' is not a result .* Did you mean 'main/study/distinction_total'\?",
        ),
        ("study.json", ["quality", "family"], ["x"], "It tests main/study/distinction_correct, "),
        ("key.json", ["study"], "other", "belongs to the study 'other'"),
        ("key.json", ["items", "i0"], None, "the item 'i0' is missing"),
        ("key.json", ["items", "i0", "answer"], "o9", "the answer 'o9' is none of"),
        ("key.json", ["items", "i0", "output"], "o9", "the output 'o9' is none of"),
        ("key.json", ["items", "i0", "scores"], {"r": 1}, "there is no row 'r'"),
        ("key.json", ["items", "i0", "right"], 1, "`items.i0.right` of key.json to be a valid boolean"),
        ("key.json", ["items", "i0", "image"], "image2", "the image 'image2' is shown 2 times"),
    ],
)
def test_what_cannot_be_run_is_refused_with_its_place(tmp_path, file, path, value, message):
    make_bundle(tmp_path / "study", "distinction")
    change(tmp_path / "study", file, path, value)
    with pytest.raises(ValueError, match=message):
        load_bundle(tmp_path / "study")


def test_photos_alone_show_no_decision_to_agree_with(tmp_path):
    make_bundle(tmp_path / "study", "agreement", "none")
    change(tmp_path / "study", "study.json", [*ITEM, "options", 0, "label"], None)
    with pytest.raises(ValueError, match=r"item i0: option o0 shows nothing of the decision .* `labels: true`"):
        load_bundle(tmp_path / "study")


def test_changed_and_missing_files_are_refused(tmp_path):
    def refused(message):
        with pytest.raises(ValueError, match=message):
            load_bundle(study)

    study = make_bundle(tmp_path / "study").folder
    picture = next((study / "media").iterdir())
    content = picture.read_bytes()
    picture.write_bytes(content + b"\0")
    refused(f"media/{picture.name}: has been changed")
    picture.unlink()
    (tmp_path / "elsewhere.png").write_bytes(content)
    picture.symlink_to(tmp_path / "elsewhere.png")
    refused(f"media/{picture.name}: is missing")
    picture.unlink()
    picture.write_bytes(content)
    for file, text, reason in (
        ("consent.md", b" \n", "is empty"),
        ("consent.md", b"\xe9", "is not UTF-8 text"),
        ("key.json", b"{", "is no JSON"),
    ):
        (study / file).write_bytes(text)
        refused(rf"{file}:? {reason}")
    shutil.rmtree(study / "media")
    (study / "key.json").unlink()
    refused(r"key\.json is missing")
    with pytest.raises(ValueError, match="is not empty"):
        make_bundle(study)


def test_a_study_that_cannot_be_run_leaves_no_folder(tmp_path):
    made = make_bundle(tmp_path / "made")
    media = {name: (made.folder / "media" / name).read_bytes() for name in made.media()}
    with pytest.raises(ValueError, match="is empty; nobody may take part"):
        write_bundle(tmp_path / "study", made.study, made.key, " ", media)
    assert not (tmp_path / "study").exists()


def test_a_consent_that_is_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "consent.md")
    with pytest.raises(ValueError, match=r"consent\.md is not a text file"):
        read_consent(tmp_path / "consent.md")


def test_numbers_that_json_does_not_have_are_refused():
    with pytest.raises(ValueError, match="`reserve_minutes` of assignment to be a finite number, but got inf"):
        read(Assignment, {"people": 1, "right": 1, "wrong": 0, "reserve_minutes": float("inf")}, "assignment")
    with pytest.raises(ValueError, match=r"study\.json to be an object"):
        read(Study, [], "study.json")
