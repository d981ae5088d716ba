import errno
import os
import warnings
from pathlib import Path

import pytest

from protometry.datamodules.cub200.attributes import read_image_labels
from protometry.datamodules.nico.files import look_at_photos
from protometry.datamodules.photos.cache import cache_folder, recall, remember
from protometry.datamodules.photos.problems import Problems
from protometry.datamodules.photos.verify import ImageFile, verify_images
from tests.photo_trees import photo


def test_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("PROTOMETRY_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "protometry"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder().parts[-2:] == (".cache", "protometry")


def test_unwritable_cache_only_warns(tmp_path):
    (tmp_path / "file").touch()
    with pytest.warns(UserWarning, match="set PROTOMETRY_CACHE to a writable folder"):
        remember(tmp_path / "file" / "stamp", b"")


def test_what_was_remembered_is_recalled(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert recall(tmp_path / "deep" / "stamp") is None
        remember(tmp_path / "deep" / "stamp", b"content")
        assert recall(tmp_path / "deep" / "stamp") == b"content"
        assert recall(tmp_path / "deep" / "stamp" / "deeper") is None
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["stamp"]  # no part file


@pytest.mark.parametrize("damage", ["flipped", "zeroed", "cut", "longer", "empty", "of another file", "another user's"])
def test_what_is_not_as_it_was_written_is_not_recalled(tmp_path, monkeypatch, damage):
    path, user = tmp_path / "stamp", os.geteuid()
    remember(path, b"content")
    remember(other := tmp_path / "other", b"content")
    stored = path.read_bytes()
    changes = {
        "flipped": stored[:-3] + b"\x55" + stored[-2:], "zeroed": bytes(len(stored)), "cut": stored[:-1],
        "longer": stored + b"\0", "empty": b"", "of another file": other.read_bytes(),
    }  # fmt: skip
    path.write_bytes(changes.get(damage, stored))
    assert (recall(path) == b"content") is (damage == "another user's")
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    assert recall(path) is None


def test_unreadable_cache_only_warns_and_once_per_folder(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()  # a folder cannot be read as a file
    with pytest.warns(UserWarning, match="set PROTOMETRY_CACHE to a readable folder") as caught:
        assert recall(tmp_path / "a") is recall(tmp_path / "b") is None
    assert len({str(warning.message) for warning in caught}) == 1


@pytest.fixture
def locked_cache(private_cache, monkeypatch):
    """The cache folder of another user."""

    def locked(method):
        def call(self, *args, **options):
            if self.is_relative_to(private_cache):
                raise PermissionError(errno.EACCES, "Permission denied", str(self))
            return method(self, *args, **options)

        return call

    for name in ("stat", "open", "read_bytes", "mkdir"):
        monkeypatch.setattr(Path, name, locked(getattr(Path, name)))


@pytest.mark.filterwarnings("ignore:The cache folder")
@pytest.mark.usefixtures("locked_cache")
class TestLockedCache:
    def test_images_are_verified(self, tmp_path):
        problems = Problems("toy", "")
        verify_images([ImageFile("1", photo(tmp_path / "a.png", 1))], "decode", 0, problems)
        problems.raise_any()

    def test_photos_are_looked_at(self, tmp_path):
        photo(tmp_path / "a.png", 1)
        assert [look.published for look in look_at_photos(tmp_path, ["a.png"], 0)] == [True]

    def test_image_labels_are_read(self, tmp_path):
        (tmp_path / "labels.txt").write_text("1 1 1 4 0.5\n")
        assert read_image_labels(tmp_path / "labels.txt", [1], 1).tolist() == [[[1, 4]]]
