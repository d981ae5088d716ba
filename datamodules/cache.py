"""Where results about data are remembered between runs, never beside the data."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from lightning.pytorch.utilities import rank_zero_warn


def cache_folder() -> Path:
    """Where results about data are remembered: ``PROTOMETRY_CACHE``, or the user's cache folder."""
    chosen = os.environ.get("PROTOMETRY_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "protometry"


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
