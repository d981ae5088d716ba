"""One process at a time in a folder of results."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from protometry.run_folder.command_line.stop_signals import is_rank_zero

LOCK = ".lock"


class FolderInUseError(ValueError):
    """Another process holds the lock of a folder."""


@contextlib.contextmanager
def only_process(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder, on rank zero; the other ranks belong to the same run.

    The lock is one of the operating system on the file ``.lock`` (POSIX, so that it holds over NFS, and loader workers
    do not inherit it): it ends with the process, however that ends. The file is removed afterwards, and so is the
    folder if it was created for the lock and is still empty.

    Args:
        folder: created if necessary.

    Raises:
        FolderInUseError: if another process holds the lock.
    """
    if not is_rank_zero():
        yield
        return
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    file = _lock(folder)
    try:
        yield
    finally:
        (folder / LOCK).unlink(missing_ok=True)  # while it is held, so that no other process holds it
        file.close()
        with contextlib.suppress(OSError):  # the first that is not empty
            for place in made:
                place.rmdir()


def _lock(folder: Path) -> IO[str]:
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / LOCK
        file = path.open("a+", encoding="utf-8")
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            file.seek(0)
            raise FolderInUseError(
                f"Expected no other process in {folder}, but {file.read() or 'one'} is using it. Wait until it ends."
            ) from None
        except OSError as error:  # a network disk without locks
            warnings.warn(f"{folder} cannot be locked ({error}): let no other process write there.", stacklevel=2)
            return file
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(file.fileno()).st_ino == path.stat().st_ino:  # not removed between opening and locking it
                file.truncate(0)
                with contextlib.suppress(OSError):  # for others to read; the lock holds without, on a full disk, too
                    os.write(file.fileno(), f"process {os.getpid()} on {socket.gethostname()}".encode())
                return file
        file.close()
