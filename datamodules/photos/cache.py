"""The cache of results about data between runs, never in the folder of the data."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from pathlib import Path

from lightning.pytorch.utilities import rank_zero_warn

from protometry.run_folder.command_line.user_path import user_path

_TICK = 20_000_000  # nanoseconds: clocks of file systems advance in steps of up to 10 ms
_DIGEST = hashlib.sha256().digest_size


def cache_folder() -> Path:
    """Where results about data are remembered: ``PROTOMETRY_CACHE``, or the user's cache folder."""
    chosen = os.environ.get("PROTOMETRY_CACHE")
    if chosen:
        return user_path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "protometry"


def stamp(path: Path) -> tuple[str | int, ...]:
    """Path, device, inode, size in bytes and times in nanoseconds of a file: others as soon as its content is another.

    A file that was changed a moment ago could be changed again at the same time of the clock of its disk. It is
    awaited, for up to 20 ms.

    Raises:
        OSError: if there is no such file.
    """
    while 0 <= time.time_ns() - (status := path.stat()).st_ctime_ns < _TICK:
        time.sleep(_TICK / 1e9)
    times = status.st_mtime_ns, status.st_ctime_ns
    return os.path.abspath(path), status.st_dev, status.st_ino, status.st_size, *times


def recall(path: Path) -> bytes | None:
    """The content of a cache file; None if it is missing, unreadable, damaged or another user's."""
    try:
        stored = path.read_bytes()
        content = stored[_DIGEST:]
        own = path.stat().st_uid == os.geteuid()
        return content if own and stored[:_DIGEST] == _digest(path, content) else None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        rank_zero_warn(
            f"The cache folder {path.parent} cannot be read ({error.strerror}): set PROTOMETRY_CACHE to a readable "
            "folder."
        )
        return None


def remember(path: Path, content: bytes) -> None:
    """Write a cache file in one step; a cache folder that cannot be written only costs the time to compute again."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(_digest(path, content) + content)
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)  # half of it on a full disk
        rank_zero_warn(f"The cache folder cannot be written ({error}): set PROTOMETRY_CACHE to a writable folder.")


def _digest(path: Path, content: bytes) -> bytes:
    return hashlib.sha256(path.name.encode() + content).digest()
