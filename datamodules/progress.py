"""The progress bar of long passes over files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import rich.progress
from lightning.pytorch.utilities import rank_zero_only
from rich.console import Console

T = TypeVar("T")


def track(items: Iterable[T], text: str, total: int | None = None) -> Iterable[T]:
    """The items, with a bar on standard error (one line at the end if that is not a terminal) and in one process."""
    quiet = getattr(rank_zero_only, "rank", 0) != 0
    return rich.progress.track(items, text, total, console=Console(stderr=True), disable=quiet)
