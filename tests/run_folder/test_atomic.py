"""Files that are there as a whole or not at all."""

import resource
import subprocess
import sys
import time

import pytest
import torch

from protometry.run_folder import model_folder
from protometry.run_folder.atomic import write_atomic, write_new
from tests.tiny_runs import ROOT


def test_a_file_is_written_as_a_whole_or_stays(tmp_path, monkeypatch):
    write_atomic(tmp_path / "new/a.txt", "zwölf\n")
    assert (tmp_path / "new/a.txt").read_bytes() == "zwölf\n".encode()
    monkeypatch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "killed")))
    with pytest.raises(OSError, match=r"killed.*new/a.txt"):
        write_atomic(tmp_path / "new/a.txt", b"other")
    assert [path.read_bytes() for path in (tmp_path / "new").iterdir()] == ["zwölf\n".encode()]


def test_a_disk_without_room_for_weights_is_an_error_of_the_system(tmp_path, monkeypatch):
    monkeypatch.setattr(model_folder, "check_content", lambda *_: None)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match=model_folder.WEIGHTS):  # of the library that packs them, another would come
            model_folder.write_exported(tmp_path, {"weight": torch.zeros(1000)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_another_content_gets_a_number(tmp_path):
    for data in (b"one", b"two", b"one", b"two", b"three"):
        write_new(tmp_path / "a.png", data)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "a.png": b"one",
        "a-2.png": b"two",
        "a-3.png": b"three",
    }


RACE = """
import sys, time
from pathlib import Path
from protometry.run_folder.atomic import write_new
folder, name, start = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
time.sleep(start - time.time())
for index in range(300):
    write_new(folder / f"{index}.csv", name.encode())
"""


def test_two_processes_lose_no_file(tmp_path):
    start = str(time.time() + 1)
    call = [sys.executable, "-c", RACE, str(tmp_path)]
    both = [subprocess.Popen([*call, name, start], cwd=ROOT) for name in ("first", "second")]
    assert [process.wait() for process in both] == [0, 0]
    assert sorted(path.read_bytes() for path in tmp_path.iterdir()) == [b"first"] * 300 + [b"second"] * 300
