import warnings

import pytest

from datamodules.cache import cache_folder, remember


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


def test_remember_leaves_no_part_file(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        remember(tmp_path / "deep" / "stamp", b"content")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["stamp"]
