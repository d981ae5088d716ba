"""The cache of results about data between runs, never in the folder of the data."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from lightning.pytorch.utilities import rank_zero_warn

from protometry.command_line.user_path import user_path


def cache_folder() -> Path:
    """Where results about data are remembered: ``PROTOMETRY_CACHE``, or the user's cache folder."""
    chosen = os.environ.get("PROTOMETRY_CACHE")
    if chosen:
        return user_path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "protometry"


def recall(path: Path) -> bytes | None:
    """The content of a cache file, or None if there is none; one that cannot be read is as good as none."""
    try:
        return path.read_bytes()
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
        part.write_bytes(content)
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)  # half of it on a full disk
        rank_zero_warn(f"The cache folder cannot be written ({error}): set PROTOMETRY_CACHE to a writable folder.")
