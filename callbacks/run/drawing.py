"""The one guard around pictures: whatever goes wrong while drawing, the run continues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lightning.pytorch.utilities import rank_zero_warn


@contextmanager
def drawing(what: str) -> Iterator[None]:
    """Around code, or as a decorator of a hook, that draws and sends pictures and decides nothing."""
    try:
        yield
    except Exception as error:  # numbers of any size meet libraries that raise anything
        reason = " ".join(str(error).split()) or type(error).__name__
        rank_zero_warn(f"No {what}: they could not be drawn or written ({reason}). Everything else continues.")
