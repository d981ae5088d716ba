"""Rows of equal size that processes and runs keep in a folder, and get back as they were written or not at all."""

from __future__ import annotations

import os
import stat
import weakref
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from struct import Struct
from typing import Any
from uuid import uuid4

from lightning.pytorch.utilities import rank_zero_warn

_ROWS, _KEYS = ".rows", ".keys"
_ENTRY = Struct("<32sI")  # the key of a row and its checksum
_NOTHING = bytes(32), 0  # in place of an entry: of a row that was never finished, or that is damaged
_MOST_OPEN = 64  # files at a time


class KeptRows:
    """Rows of bytes in a folder, each known by a key of 32 bytes.

    Every process that keeps rows writes two files of its own, of rows and of their keys, in which each row has a number
    and thereby a place. It may be interrupted or killed at any time and go on, and others may read meanwhile. Beside
    its key, a row has a CRC-32 of itself, the key and the name of the folder, which is checked when a process first
    reads the row, and again after the file has changed. What is damaged is forgotten, with one warning, so that it is
    made and kept again; what cannot be written, such as on a full disk, gives one warning, too. Files are read and not
    mapped, since a process that maps a file is killed when somebody shortens it. Files of other users are not read.

    Args:
        folder: it is made with the first row.
        row_bytes: size of every row.
        what: the rows are, in warnings.

    Example:
        >>> import tempfile
        >>> kept, row = KeptRows(Path(tempfile.mkdtemp()), 4, "Rows"), bytearray(4)
        >>> kept.keep([(b"k" * 32, b"abcd")])
        >>> kept.read(b"k" * 32, row), row, kept.read(b"other".zfill(32), row)
        (True, bytearray(b'abcd'), False)
    """

    def __init__(self, folder: Path, row_bytes: int, what: str) -> None:
        self.folder, self.row_bytes = folder, row_bytes
        self.writable = True
        self._what = what
        self._places: dict[bytes, tuple[str, int, int]] = {}  # key -> files, number, checksum
        self._checked: dict[bytes, int] = {}  # key -> when its file had last been changed
        self._entries: dict[str, int] = {}  # that were read of each pair of files
        self._open: dict[str, _OwnFile] = {}
        self._own: tuple[int, str, Iterator[int]] = 0, "", count()  # process, its files, numbers of its next rows
        self._said: set[str] = set()
        self.reload()

    def __reduce__(self) -> tuple[Any, ...]:
        return KeptRows, (self.folder, self.row_bytes, self._what)  # a copy writes files of its own

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: bytes) -> bool:
        return key in self._places

    def reload(self) -> None:
        """Find what all processes have kept since the last time."""
        for path in self.folder.glob(f"*{_KEYS}"):
            start = self._entries.get(path.stem, 0)
            try:
                if not start:
                    self._opened(path.stem)
                keys = _OwnFile(path)
                content = os.pread(keys.descriptor, path.stat().st_size, start * _ENTRY.size)
            except FileNotFoundError:  # somebody removed them
                continue
            except OSError as error:
                self._say("not read", f"{self._what} in {self.folder} are made again: {error}.")
                continue
            whole = len(content) // _ENTRY.size
            for number, entry in enumerate(_ENTRY.iter_unpack(content[: whole * _ENTRY.size]), start):
                if entry != _NOTHING:
                    self._places[entry[0]] = path.stem, number, entry[1]
            self._entries[path.stem] = start + whole

    def read(self, key: bytes, row: bytearray | memoryview) -> bool:
        """Fill ``row`` with the row of a key; False if there is none, or none that is as it was written."""
        if key not in self._places:
            return False
        files, number, checksum = self._places[key]
        try:
            file = self._opened(files)  # which stays open meanwhile, whatever other threads do
            changed = os.fstat(file.descriptor).st_ctime_ns
            size = os.preadv(file.descriptor, [row], number * self.row_bytes)
        except OSError:  # somebody removed it
            self._places.pop(key, None)
            return False
        unchanged = self._checked.get(key) == changed
        if size == self.row_bytes and (unchanged or checksum == self._checksum(key, row)):
            self._checked[key] = changed
            return True
        self._places.pop(key, None)
        with suppress(OSError):
            self._write(files, _KEYS, number, _ENTRY.pack(*_NOTHING))
        self._say("damaged", f"Some {self._what.lower()} in {self.folder} are damaged: they are made again.")
        return False

    def keep(self, rows: Iterable[tuple[bytes, bytes | memoryview]], sync: bool = False) -> None:
        """Keep rows by their keys.

        Args:
            rows: pairs of key and row.
            sync: whether the rows are to be on the disk before their keys. A loss of power then costs fewer of them.
        """
        if not self.writable:
            return
        try:
            files, numbers = self._own_files()
            placed = {next(numbers): pair for pair in rows}
            for number, (_, row) in placed.items():
                self._write(files, _ROWS, number, row)
            if sync:
                os.fsync(self._opened(files).descriptor)
            for number, (key, row) in placed.items():
                checksum = self._checksum(key, row)
                self._write(files, _KEYS, number, _ENTRY.pack(key, checksum))
                self._places[key] = files, number, checksum
        except OSError as error:
            self.writable = False
            self._say(
                "full",
                f"{self._what} cannot be kept in {self.folder} ({error.strerror}): those that are not there are made "
                "again every time. Choose another `data.cache`, or null.",
            )

    def _checksum(self, key: bytes, row: bytes | bytearray | memoryview) -> int:
        return zlib.crc32(row, zlib.crc32(self.folder.name.encode() + key))

    def _own_files(self) -> tuple[str, Iterator[int]]:
        """The files that this process alone writes; after a fork, the copy of this object makes others."""
        process, files, numbers = self._own
        if process != os.getpid():
            self.folder.mkdir(parents=True, exist_ok=True)
            files, numbers = uuid4().hex, count()
            for suffix in (_ROWS, _KEYS):
                self._path(files, suffix).touch(exist_ok=False)
            self._own = os.getpid(), files, numbers
        return files, numbers

    def _write(self, files: str, suffix: str, number: int, row: bytes | memoryview) -> None:
        """Write a row or an entry completely at its place, if the file is still there."""
        content = memoryview(row).cast("B")
        place = number * (self.row_bytes if suffix == _ROWS else _ENTRY.size)
        with self._path(files, suffix).open("r+b", buffering=0) as file:
            while content:
                written = os.pwrite(file.fileno(), content, place)
                content, place = content[written:], place + written

    def _opened(self, files: str) -> _OwnFile:
        if files not in self._open:
            if len(self._open) >= _MOST_OPEN:
                self._open.clear()
            self._open[files] = _OwnFile(self._path(files, _ROWS))
        return self._open[files]

    def _path(self, files: str, suffix: str) -> Path:
        return self.folder / f"{files}{suffix}"

    def _say(self, about: str, text: str) -> None:
        if about not in self._said:
            self._said.add(about)
            rank_zero_warn(text)


class _OwnFile:
    """A regular file of this user, open for reading as long as somebody refers to it."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would wait for a writer
        weakref.finalize(self, os.close, self.descriptor)
        status = os.fstat(self.descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is a folder, a pipe or a device, but should be a file")
        if status.st_uid != os.geteuid():
            raise OSError(f"{path} belongs to another user")
