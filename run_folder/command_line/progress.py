"""How far a long pass is: a bar in a terminal, and elsewhere, as in the log of a cluster, a line every half minute."""

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
_ONE_AT_A_TIME = Lock()  # a pass within another one is not told


def track(items: Iterable[T], text: str, total: int | None = None) -> Iterator[T]:
    """The items, of which it is told how many have been seen.

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
    """Tell how far a pass is, on standard error and in one process, also while a single step takes minutes.

    Yields:
        What to call after each step.
    """
    if not is_rank_zero() or not _ONE_AT_A_TIME.acquire(blocking=False):
        yield lambda: None
        return
    told, over = _Told(text, total), Event()
    thread = Thread(target=told.tell, args=(over,), daemon=True)
    thread.start()
    try:
        yield told.advance
    finally:
        over.set()
        thread.join()
        _ONE_AT_A_TIME.release()


class _Told:
    """What is known of a pass."""

    def __init__(self, text: str, total: int | None) -> None:
        self.text, self.total, self.done, self.began = text, total or None, 0, time.monotonic()
        self.out = sys.stderr  # as it is now: a step may redirect it

    def advance(self) -> None:
        self.done += 1

    def tell(self, over: Event) -> None:
        """Until it is over, a bar or lines; nothing of a short one."""
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
