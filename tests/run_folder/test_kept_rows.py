"""Rows that are kept: read as they were written or not at all, whatever happens to files, processes and disks."""

import os
import random
import resource
import shutil
import threading
import warnings

import pytest

from protometry.run_folder import kept_rows
from protometry.run_folder.kept_rows import KeptRows

SIZE, COUNT, ENTRY = 1000, 12, 36
ROWS = {bytes([number]) * 32: random.Random(number).randbytes(SIZE) for number in range(1, COUNT + 1)}


def opened(folder):
    return KeptRows(folder, SIZE, "Rows")


def filled(folder):
    kept = opened(folder)
    kept.keep(ROWS.items())
    return kept


def kept_one_by_one(kept, sync=False):
    for row in ROWS.items():
        kept.keep([row], sync)


def read(kept, key):
    row = bytearray(SIZE)
    return bytes(row) if kept.read(key, row) else None


def made_again(folder, lines):
    """How many rows are not there, none of which is wrong; kept again, all are read without a word."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        kept = opened(folder)
        found = {key: read(kept, key) for key in ROWS}
        missing = [key for key in ROWS if found[key] is None]
        kept.keep((key, ROWS[key]) for key in missing)
    assert {key: row for key, row in found.items() if row} == {k: ROWS[k] for k in ROWS if k not in missing}
    assert [str(warning.message) for warning in said] == ([str(said[0].message)] if lines else [])
    with warnings.catch_warnings():
        warnings.simplefilter("error" if lines != "always" else "ignore")
        kept = opened(folder)
        assert {key: read(kept, key) for key in ROWS} == ROWS
    return len(missing)


def changed(start, content):
    def change(path):
        with path.open("r+b") as file:
            file.seek(start)
            file.write(content)

    return change


def swapped(first, second, size):
    def change(path):
        content = path.read_bytes()
        rows = [content[number * size : (number + 1) * size] for number in range(len(content) // size)]
        rows[first], rows[second] = rows[second], rows[first]
        path.write_bytes(b"".join(rows))

    return change


def longer(path):
    path.write_bytes(path.read_bytes() * 2)


def shifted(path):
    path.write_bytes(path.read_bytes()[7:])


def replaced_by(make):
    def change(path):
        path.unlink()
        make(path)

    return change


DAMAGES = {  # of which file, by what: how many rows are made again, how often that is said
    "zeroed half": (".rows", changed(0, bytes(SIZE * COUNT // 2)), 6, 1),
    "flipped byte": (".rows", changed(4321, b"\x55"), 1, 1),
    "NaN": (".rows", changed(8 * SIZE, b"\0\0\xc0\x7f" * 250), 1, 1),
    "swapped rows": (".rows", swapped(2, 9, SIZE), 2, 1),
    "shifted rows": (".rows", shifted, COUNT, 1),
    "cut rows": (".rows", lambda path: os.truncate(path, 5 * SIZE + 1), 7, 1),
    "no rows": (".rows", lambda path: os.truncate(path, 0), COUNT, 1),
    "longer rows": (".rows", longer, 0, 0),
    "removed rows": (".rows", os.remove, COUNT, 0),
    "folder for rows": (".rows", replaced_by(os.mkdir), COUNT, "always"),
    "pipe for keys": (".keys", replaced_by(os.mkfifo), COUNT, "always"),
    "zeroed keys": (".keys", changed(0, bytes(ENTRY * COUNT // 2)), 6, 0),
    "flipped key": (".keys", changed(3 * ENTRY + 4, b"\x55"), 1, 0),
    "flipped checksum": (".keys", changed(3 * ENTRY + 33, b"\x55"), 1, 1),
    "swapped keys": (".keys", swapped(2, 9, ENTRY), 2, 1),
    "shifted keys": (".keys", shifted, COUNT, 0),
    "cut keys": (".keys", lambda path: os.truncate(path, 5 * ENTRY + 1), 7, 0),
    "longer keys": (".keys", longer, COUNT, 1),
    "removed keys": (".keys", os.remove, COUNT, 0),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_is_made_again_with_one_line(tmp_path, damage):
    suffix, change, missing, lines = DAMAGES[damage]
    filled(tmp_path / "kept")
    (path,) = (tmp_path / "kept").glob(f"*{suffix}")
    change(path)
    assert made_again(tmp_path / "kept", lines) == missing


def test_damage_after_rows_were_found_and_even_read(tmp_path):
    kept, early = filled(tmp_path), opened(tmp_path)
    assert {key: read(early, key) for key in ROWS} == ROWS
    os.truncate(next(tmp_path.glob("*.rows")), 3 * SIZE)
    with pytest.warns(UserWarning, match="Some rows in .* are damaged: they are made again") as said:
        assert [read(reader, key) for reader in (kept, early) for key in ROWS][3:COUNT] == [None] * 9
    assert len(said) == 2  # a line of each of the two readers


def test_zeros_in_place_of_rows_that_were_already_read(tmp_path):
    kept = filled(tmp_path)
    assert {key: read(kept, key) for key in ROWS} == ROWS
    changed(0, bytes(3 * SIZE))(next(tmp_path.glob("*.rows")))
    with pytest.warns(UserWarning, match="damaged"):
        assert [key for key in ROWS if read(kept, key) is None] == list(ROWS)[:3]


def test_rows_of_another_folder_are_not_those_of_this_one(tmp_path):
    filled(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    assert made_again(tmp_path / "other", 1) == COUNT


def test_files_of_another_user_are_not_read(tmp_path, monkeypatch):
    filled(tmp_path)
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.warns(UserWarning, match="Rows in .* are made again: .* belongs to another user") as said:
        kept = opened(tmp_path)
    with warnings.catch_warnings(action="error"):
        kept.reload()
    assert (len(kept), len(said)) == (0, 1)


@pytest.mark.parametrize("suffix", [".rows", ".keys"])
@pytest.mark.parametrize("when", ["before", "after half"])
def test_an_interrupt_shifts_nothing_in_a_process_that_goes_on(tmp_path, monkeypatch, suffix, when):
    kept, write, (first, second, *others) = opened(tmp_path), KeptRows._write, ROWS
    kept.keep([(first, ROWS[first])])

    def interrupted(self, files, its_suffix, number, row):
        if its_suffix == suffix:
            if when == "after half":
                changed(number * (SIZE if suffix == ".rows" else ENTRY), row[: len(row) // 2])(
                    self._path(files, suffix)
                )
            raise KeyboardInterrupt
        write(self, files, its_suffix, number, row)

    monkeypatch.setattr(KeptRows, "_write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        kept.keep([(second, ROWS[second])])
    monkeypatch.setattr(KeptRows, "_write", write)
    kept.keep((key, ROWS[key]) for key in others)
    assert made_again(tmp_path, 0) == 1


@pytest.mark.parametrize("sync", [False, True])
def test_a_full_disk_is_said_once_and_leaves_whole_rows(tmp_path, sync):
    limits, kept = resource.getrlimit(resource.RLIMIT_FSIZE), opened(tmp_path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5 * SIZE + SIZE // 2, limits[1]))
    try:
        with pytest.warns(UserWarning, match=r"Rows cannot be kept in .* Choose another `data\.cache`") as said:
            kept_one_by_one(kept, sync)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(said) == 1
    assert made_again(tmp_path, 0) == COUNT - 5


def test_a_folder_that_cannot_be_written_is_said_once(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    kept = opened(tmp_path / "file" / "kept")
    with pytest.warns(UserWarning, match="cannot be kept") as said:
        kept_one_by_one(kept)
    assert (len(said), len(kept)) == (1, 0)


def test_a_loss_of_power_leaves_rows_of_zeros_or_none(tmp_path):
    kept = opened(tmp_path)
    kept.keep(list(ROWS.items())[:6], sync=True)
    kept.keep(list(ROWS.items())[6:])
    (rows,) = tmp_path.glob("*.rows")
    os.truncate(rows, 6 * SIZE)  # keys reached the disk before
    os.truncate(rows, COUNT * SIZE)
    assert made_again(tmp_path, 1) == 6


def test_threads_forks_and_copies_write_at_once(tmp_path):
    kept, keys = opened(tmp_path), list(ROWS)

    def work(some, store):
        for key in some:
            store.keep([(key, ROWS[key])])

    threads = [threading.Thread(target=work, args=(keys[part:8:4], kept)) for part in range(4)]
    for thread in threads:
        thread.start()
    if not (child := os.fork()):
        work(keys[8:10], kept)
        os._exit(0)
    work(keys[10:], kept.__reduce__()[0](*kept.__reduce__()[1]))
    for thread in threads:
        thread.join()
    os.waitpid(child, 0)
    assert made_again(tmp_path, 0) == 0
    assert 2 <= len([*tmp_path.glob("*.keys")]) <= 6


def test_more_files_than_may_be_open(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_rows, "_MOST_OPEN", 2)
    for key, row in ROWS.items():
        opened(tmp_path).keep([(key, row)])
    before = len(os.listdir("/proc/self/fd"))
    kept = opened(tmp_path)
    assert {key: read(kept, key) for key in ROWS} == ROWS
    assert len(os.listdir("/proc/self/fd")) <= before + 2
