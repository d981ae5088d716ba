"""The folder of a check is new and lies outside the data; its files are never overwritten."""

import json
from pathlib import Path

import pytest
from PIL import Image

from protometry.datamodules import Cub200, SketchBirds
from protometry.datamodules.check.check import check_data
from protometry.datamodules.check.report import new_folder, write_check


def cub(root):
    return Cub200(str(root), image_size=32)


def test_the_default_is_named_after_the_data_set(cub_tree, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = cub(cub_tree())
    assert new_folder(None, data) == Path("runs/check/cub200")
    assert new_folder(None, data).is_dir()  # empty: welcome again
    (tmp_path / "runs/check/cub200/check.json").touch()
    (tmp_path / "runs/check/cub200-2").touch()
    assert new_folder(None, data) == Path("runs/check/cub200-3")


def test_findings_and_pictures_are_written_once(tmp_path):
    check = check_data(SketchBirds("tiny"), limit=1)
    write_check(check, tmp_path)
    assert json.loads((tmp_path / "check.json").read_text()) == check.record
    with Image.open(tmp_path / "contact_sheet.png") as sheet:
        assert sheet.width > 500
    with pytest.raises(FileExistsError, match=r"check\.json"):
        write_check(check, tmp_path)


def test_content_is_kept(cub_tree, tmp_path):
    (tmp_path / "mine").write_text("mine")
    data = cub(cub_tree() / "CUB_200_2011")
    for out in (tmp_path, tmp_path / "mine"):
        with pytest.raises(ValueError, match="`out` to be a folder that is missing or empty"):
            new_folder(str(out), data)
    assert (tmp_path / "mine").read_text() == "mine"


def test_not_below_the_data(cub_tree, monkeypatch):
    root = cub_tree()
    monkeypatch.chdir(root)
    for out, data in [(str(root / below), root) for below in ("", "new", "CUB_200_2011/deep/new")] + [(None, ".")]:
        with pytest.raises(ValueError, match="`out` to lie outside the data"):
            new_folder(out, cub(data))
