"""How far a long pass over files has come, as one line of text per tenth."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from typing import Protocol, TypeVar

from lightning.pytorch.utilities import rank_zero_only

T = TypeVar("T")
QUIET_SECONDS = 2.0


class Progress(Protocol):
    """Yields the items it is given and tells someone about it."""

    def __call__(self, items: Collection[T], text: str) -> Iterator[T]:
        """Pass ``items`` on; ``text`` says what happens to them."""
        ...


def print_progress(items: Collection[T], text: str) -> Iterator[T]:
    """Yield the items and print a line for every tenth of them, once the pass has taken two seconds.

    Args:
        items: what is worked on.
        text: what happens to them, such as "rendering train".

    Yields:
        The items.

    Example:
        >>> list(print_progress("abc", "spelling"))
        ['a', 'b', 'c']
    """
    start, shown = time.monotonic(), 0
    for done, item in enumerate(items, start=1):
        yield item
        tenth = 10 * done // len(items)
        if tenth > shown and time.monotonic() - start > QUIET_SECONDS:
            shown = tenth
            _print(f"{text}: {done} of {len(items)} ({10 * tenth} %)")


def no_progress(items: Collection[T], text: str) -> Iterator[T]:
    """Yield the items and say nothing."""
    return iter(items)


@rank_zero_only
def _print(line: str) -> None:
    print(line, flush=True)
