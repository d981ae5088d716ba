"""Files that are there as a whole or not at all."""

import pytest

from run_folder.atomic import write_new, write_whole


def test_a_file_is_written_as_a_whole_or_stays(tmp_path, monkeypatch):
    write_whole(tmp_path / "new/a.txt", "zwölf\n")
    assert (tmp_path / "new/a.txt").read_bytes() == "zwölf\n".encode()
    monkeypatch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "killed")))
    with pytest.raises(OSError, match=r"killed.*new/a.txt"):
        write_whole(tmp_path / "new/a.txt", b"other")
    assert [path.read_bytes() for path in (tmp_path / "new").iterdir()] == ["zwölf\n".encode()]


def test_another_content_gets_a_number(tmp_path):
    for data in (b"one", b"two", b"one", b"two", b"three"):
        write_new(tmp_path / "a.png", data)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "a.png": b"one",
        "a-2.png": b"two",
        "a-3.png": b"three",
    }
