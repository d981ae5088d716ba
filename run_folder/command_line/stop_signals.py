"""Signals that end a command, wherever it is and on all of its processes: Ctrl-C, SIGTERM, SIGHUP and SIGUSR1.

A signal raises :class:`StopSignal` in the main thread, so that everything is tidied up on the way out; nothing needs to
ask. A second thread passes it on to the other processes of the command, and ends this one if the main thread does not
get there, as in a call of another library that waits for a process which is gone. All files are written completely or
not at all, so this is as safe as a kill.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, Protocol

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
SECONDS_TO_STOP, SECONDS_TO_SAVE = 4.0, 20.0  # that the main thread has, and has while it holds signals
SECONDS_BETWEEN_LOOKS = 0.25  # at what other processes say
AT_ONCE = 1.0  # seconds in which signals are one: launchers and terminals send them to a process and to its group
KEY = "protometry/stopped by"


class StopSignal(BaseException):
    """A signal told this process to end.

    Args:
        number: of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Store(Protocol):
    """What the processes of a command share: the store of ``torch.distributed``."""

    def set(self, key: str, value: str) -> None:
        """Tell the others."""

    def get(self, key: str) -> bytes:
        """What another one has told."""

    def check(self, keys: list[str]) -> bool:
        """Whether another one has told something."""


class Signals:
    """The handlers of a command; a program that uses this package as a library keeps its own.

    Attributes:
        go_on: what to do after an interruption.
        number: of the first signal, or None.
        launched: what sends a signal to processes that this one has started.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._begin()

    def _begin(self) -> None:
        self.go_on: Callable[[], str] = lambda: "Run the command again."
        self.number: int | None = None
        self.launched: list[Callable[[Any], None]] = []
        self._store: Store | None = None
        self._raised = self._held = False
        self._released = 0.0

    @property
    def handled(self) -> bool:
        """Whether this process is a command that listens."""
        return bool(self._before)

    def listen(self) -> None:
        """Handle the signals that are not ignored, such as SIGHUP by ``nohup``, until :meth:`rest`."""
        if self.handled or threading.current_thread() is not threading.main_thread():
            return
        self._begin()
        handlers = {number: signal.getsignal(number) for number in ENDING}
        self._before = {number: handler for number, handler in handlers.items() if handler != signal.SIG_IGN}
        self._arrivals, self._own_end = socket.socketpair()
        self._own_end.setblocking(False)
        self._woken_before = signal.set_wakeup_fd(self._own_end.fileno(), warn_on_full_buffer=False)
        for number in self._before:
            signal.signal(number, self._raise)
        threading.Thread(target=self._watch, args=(self._arrivals,), daemon=True, name="signals").start()

    def rest(self) -> None:
        """Give the former handlers back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self.handled:
            signal.set_wakeup_fd(self._woken_before)
            self._own_end.shutdown(socket.SHUT_RDWR)  # ends the thread
            self._own_end.close()
        self._before = {}
        self._begin()

    def finish(self) -> None:
        """From now on, while Python ends, let a signal end the process at once: the command is complete."""
        self.go_on = lambda: "The command was complete."
        for number in ENDING:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._end_finished)

    def hold(self) -> None:
        """Put a stop off until :meth:`release`, for a result that took long and is about to be written."""
        self._held = True

    def release(self) -> None:
        """End :meth:`hold`.

        Raises:
            StopSignal: if there was a signal meanwhile.
        """
        self._held, self._released = False, time.monotonic()
        if self.number is not None:
            self._raise(self.number, None)

    def share(self, store: Store) -> None:
        """From now on, stop together with all processes that share the store."""
        self._store = store
        self._own_end.send(b"\0")  # for the thread, which may be waiting for signals only

    def arrives(self) -> bool:
        """Whether a signal has come, or comes soon to a process that has just lost another one."""
        end = time.monotonic() + AT_ONCE
        while self.number is None and self._store is not None and time.monotonic() < end:
            time.sleep(SECONDS_BETWEEN_LOOKS)
        return self.number is not None

    def leave(self) -> None:
        """Wait until the other processes have read what the store, which may be this process's, says."""
        if self._store is not None:
            time.sleep(2 * SECONDS_BETWEEN_LOOKS)

    def _raise(self, number: int, frame: object) -> None:
        """In the main thread; further signals are left to the other one, which does not let them wait."""
        self.number = self.number or number
        if not (self._raised or self._held):
            self._raised = True
            raise StopSignal(self.number)

    def _watch(self, arrivals: socket.socket) -> None:
        """The other thread: it learns of signals at once, whatever the main thread is doing."""
        arrived: float | None = None
        told: int | None = None
        while True:
            waiting = self._store is None and arrived is None
            ready, *_ = select.select([arrivals], [], [], None if waiting else SECONDS_BETWEEN_LOOKS)
            numbers = list(arrivals.recv(64)) if ready else []
            if (ready and not numbers) or arrivals is not self._arrivals:  # at rest, or of another command by now
                return
            if arrived is None and told is None and (told := self._told()):  # once: its handler may be gone by then
                signal.pthread_kill(threading.main_thread().ident or 0, told)
            now = time.monotonic()
            for number in numbers:
                if number not in self._before or signal.getsignal(number) != self._raise:
                    continue  # of a child process, or handled by Lightning
                if arrived is None:
                    arrived, self.number = now, number
                    self._tell(number)
                elif now - arrived > AT_ONCE:
                    self._end()
            left = SECONDS_TO_SAVE if self._held else SECONDS_TO_STOP
            if arrived is not None and now - max(arrived, self._released) > left:
                self._end()

    def _tell(self, number: int) -> None:
        for send in self.launched:
            send(number)
        if self._store is not None:
            try:
                self._store.set(KEY, str(number))
            except RuntimeError:  # it was in a process that has ended
                self._store = None

    def _told(self) -> int | None:
        """The number of the signal that another process got."""
        try:
            return int(self._store.get(KEY)) if self._store is not None and self._store.check([KEY]) else None
        except RuntimeError:  # it was in a process that has ended
            self._store = None
            return None

    def _end_finished(self, number: int, frame: object) -> NoReturn:
        self.number = number
        self._end()

    def _end(self) -> NoReturn:
        """End at once, without the main thread."""
        if is_rank_zero():
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"\n{self.said()}\n".encode())
        os._exit(128 + (self.number or 0))

    def said(self) -> str:
        """The line about the signal."""
        name = signal.Signals(self.number or 0).name
        return f"Stopped by {'Ctrl-C' if name == 'SIGINT' else name}. {self.go_on()}"


SIGNALS = Signals()


@contextmanager
def handled_by(handler: Callable[[int, Any], None]) -> Iterator[None]:
    """Let signals that are not ignored mean something else in a block, without telling :data:`SIGNALS`.

    Args:
        handler: as for ``signal.signal``.
    """
    handled = [number for number in ENDING if signal.getsignal(number) != signal.SIG_IGN]
    woken = signal.set_wakeup_fd(-1)
    before = {number: signal.signal(number, handler) for number in handled}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)


def is_rank_zero() -> bool:
    """By the rank that the launcher gives, the only source before there is a ``Trainer``."""
    ranks = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")
    of_process = next((os.environ[name] for name in ranks if name in os.environ), 0)
    return int(of_process) == int(os.environ.get("NODE_RANK", 0)) == 0


def _forget() -> None:
    """In a forked process, such as a worker: signals mean there what they mean by default."""
    if SIGNALS.handled:
        for number in SIGNALS._before:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        SIGNALS._before = {}


os.register_at_fork(after_in_child=_forget)
