"""Files that are written completely or not at all: a kill or a full disk leaves the earlier content, or none."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a file such that a kill leaves either the old or the new content.

    Args:
        path: the file; its folder is made if it is not there.
        content: the new content, a text in UTF-8.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    try:
        part.write_bytes(content if isinstance(content, bytes) else content.encode())
        part.replace(path)
    except BaseException as error:
        part.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None:
            error.filename = str(path)  # a full disk is reported without one
        raise


def append_whole(path: Path, content: bytes) -> None:
    """Append to a file all of some bytes or none: a disk that fills up does not leave half a line for the next one.

    Args:
        path: the file; made if it is not there.
        content: the further bytes, such as whole lines.

    Raises:
        OSError: naming the file, which then ends where it did.
    """
    with path.open("ab", buffering=0) as file:
        end, left = file.tell(), memoryview(content)
        try:
            while left:  # a write to an almost full disk takes a part and raises nothing
                left = left[file.write(left) :]
        except OSError as error:
            file.truncate(end)
            error.filename = str(path)
            raise


def write_new(path: Path, data: bytes) -> Path:
    """Write a new file unless it exists with the same content; if the content differs, the new file gets a number.

    Processes that do so in one folder at the same time wait for each other.

    Args:
        path: the file; its folder is made if it is not there.
        data: what it is to hold.

    Returns:
        Where it lies.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _alone_in(path.parent):
        target, number = path, 1
        while target.exists():
            if target.read_bytes() == data:
                return target
            number += 1
            target = path.with_name(f"{path.stem}-{number}{path.suffix}")
        write_atomic(target, data)
        return target


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Wait for the lock of the operating system on a folder, which ends with its process and leaves no file."""
    descriptor = os.open(folder, os.O_RDONLY)
    with suppress(OSError):  # a network disk may have none
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # forked workers may have the descriptor, too
        os.close(descriptor)
