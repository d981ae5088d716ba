import os
import zipfile

import pytest

from protometry.datamodules.funnybirds import FunnyBirds
from protometry.datamodules.funnybirds import tables as funnybirds
from protometry.datamodules.photos.download import Archive
from tests.funnybirds_tree import read_funnybirds as module


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
        assert (len(data.dataset("test")), os.listdir(tmp_path / "home")) == (4, ["data"])

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
