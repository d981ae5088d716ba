import json
import os
import zipfile

import numpy as np
import pytest
from PIL import Image

from protometry.datamodules.funnybirds import FunnyBirds
from protometry.datamodules.funnybirds import data_module as funnybirds
from protometry.datamodules.photos.download import Archive
from tests.funnybirds_tree import read_funnybirds as module
from tests.photo_trees import edit


class TestBadInput:
    def test_wrong_root(self, funnybirds_tree, tmp_path):
        root = funnybirds_tree("home/FunnyBirds")
        with pytest.raises(FileNotFoundError, match=rf"holds 0, 1, .*at another level: use `root: {root}`"):
            module(root / "test").num_classes  # noqa: B018
        module(root.parent).prepare_data()  # the folder that holds FunnyBirds/ is right
        with pytest.raises(FileNotFoundError, match=rf"holds home\. .* use `root: {root.parent}`"):
            module(tmp_path).prepare_data()
        with pytest.raises(FileNotFoundError, match=r"there is none at .*/nowhere.*FunnyBirds\.zip \(about 1\.6 GB\)"):
            module(root / "nowhere").prepare_data()

    def test_all_problems_in_one_error(self, funnybirds_tree):
        root = funnybirds_tree()
        empty(root / "test/1/000001.png")
        (root / "train/2/000010.png").unlink()
        paint(root / "train_part_map/3/000003.png", (12, 200, 7))
        with pytest.raises(FileNotFoundError, match=r"(?s)3 problems:.*000010.*000003.*000001.*FunnyBirds\.zip"):
            module(root).prepare_data()

    def test_changed_table_is_compared_with_verified_maps_again(self, funnybirds_tree):
        root = funnybirds_tree()
        module(root).prepare_data()
        entries = json.loads((root / "dataset_train.json").read_text())
        entries[2]["wing_model"] = "placeholder"
        edit(root / "dataset_train.json", lambda text: json.dumps(entries))
        with pytest.raises(ValueError, match=r"train_part_map/2/000002\.png shows the wing, which the table calls"):
            module(root).prepare_data()


def empty(path):
    path.write_bytes(b"")


def paint(path, color):
    with Image.open(path) as image:
        pixels = np.array(image.convert("RGB"))
    pixels[:4, :4] = color
    Image.fromarray(pixels).save(path)


class TestDownload:
    @pytest.fixture
    def server(self, funnybirds_tree, tmp_path, monkeypatch):
        """An archive of 8 classes, 24 training and 4 test images instead of the official one."""
        root = funnybirds_tree("server/FunnyBirds")
        path = tmp_path / "FunnyBirds.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for file in root.rglob("*"):
                archive.write(file, file.relative_to(root.parent))
        monkeypatch.setattr(FunnyBirds, "archives", (Archive(path.as_uri(), None, path.stat().st_size),))
        monkeypatch.setattr(FunnyBirds, "promised_classes", 8)
        monkeypatch.setattr(funnybirds, "OFFICIAL_CLASSES", 8)
        monkeypatch.setattr(funnybirds, "OFFICIAL_SIZES", {"train": 24, "test": 4})
        return path

    def test_counts_are_the_check(self, server, tmp_path):
        data = module(tmp_path / "home/data", download=True)
        assert data.num_classes == 8
        data.prepare_data()
        data.setup()
        assert len(data.dataset("test")) == 4
        assert os.listdir(tmp_path / "home") == ["data"]

    def test_wrong_counts_leave_nothing(self, server, tmp_path, monkeypatch):
        monkeypatch.setattr(funnybirds, "OFFICIAL_SIZES", {"train": 50, "test": 4})
        with pytest.raises(ValueError, match=r"(?s)download of .*dataset_train\.json: expected 50 entries, but got 24"):
            module(tmp_path / "home/data", download=True).prepare_data()
        assert os.listdir(tmp_path / "home") == []

    def test_missing_files_leave_nothing(self, server, tmp_path):
        with zipfile.ZipFile(server) as archive:
            members = {name: archive.read(name) for name in archive.namelist() if "body_eye.png" not in name}
        with zipfile.ZipFile(server, "w") as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        with pytest.raises(FileNotFoundError, match=r"misses 1 of them; the first is body_eye\.png"):
            module(tmp_path / "home/data", download=True).prepare_data()
        assert os.listdir(tmp_path / "home") == []
