"""How far a long pass is: a bar in a terminal; elsewhere, as in the log of a cluster, a line every half minute."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import Progress

from protometry.run_folder.command_line.messages import in_words
from protometry.run_folder.command_line.stop_signals import is_rank_zero

T = TypeVar("T")
SECONDS_BEFORE_BAR, SECONDS_BETWEEN_LINES = 2.0, 30.0
_ONE_AT_A_TIME = Lock()  # a pass within another one shows nothing


def track(items: Iterable[T], text: str, total: int | None = None) -> Iterator[T]:
    """The items, while the user sees how many of them are done.

    Args:
        items: batches, files or anything else.
        text: what is done, such as "Keeping features".
        total: their number, by default their length if they have one.
    """
    with progress(text, len(items) if total is None and isinstance(items, Sized) else total) as advance:
        for item in items:
            yield item
            advance()


@contextmanager
def progress(text: str, total: int | None = None) -> Iterator[Callable[[], None]]:
    """Show how far a pass is, on standard error and in one process, also while a single step takes minutes.

    Args:
        text: what is done.
        total: number of steps; None if it is not known.

    Yields:
        What to call after each step.
    """
    if not is_rank_zero() or not _ONE_AT_A_TIME.acquire(blocking=False):
        yield lambda: None
        return
    shown, over = _Pass(text, total), Event()
    thread = Thread(target=shown.show, args=(over,), daemon=True)
    thread.start()
    try:
        yield shown.advance
    finally:
        over.set()
        thread.join()
        _ONE_AT_A_TIME.release()


class _Pass:
    """A pass over some items."""

    def __init__(self, text: str, total: int | None) -> None:
        self.text, self.total, self.done, self.began = text, total or None, 0, time.monotonic()
        self.out = sys.stderr  # bound now, since a step may redirect it

    def advance(self) -> None:
        self.done += 1

    def show(self, over: Event) -> None:
        """Draw a bar or print lines until it is over; nothing if it is short."""
        console = Console(file=self.out)
        if not console.is_terminal:
            while not over.wait(SECONDS_BETWEEN_LINES):
                print(self.line(time.monotonic()), file=self.out, flush=True)
        elif not over.wait(SECONDS_BEFORE_BAR):
            self._draw(console, over)

    def _draw(self, console: Console, over: Event) -> None:
        with Progress(console=console) as bar:
            task: Any = bar.add_task(self.text, total=self.total, completed=self.done)
            while not over.wait(0.2):
                bar.update(task, completed=self.done)
            bar.update(task, completed=self.done)

    def line(self, now: float) -> str:
        """How far it is and how long it has taken, with the time left where that is known."""
        spent = now - self.began
        far = f"{self.done} done" if self.total is None else f"{100 * self.done / self.total:.0f} %"
        left = in_words(spent / self.done * (self.total - self.done)) if self.total and self.done else ""
        return " · ".join(filter(None, [f"{self.text}: {far}", f"{spent:.0f} s so far", left]))
