"""How a command ends: exit codes, one-line errors, and what they advise."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from protometry.run_folder.command_line.freed_memory import keep_freed_memory
from protometry.run_folder.command_line.messages import (
    ListError,
    line_by_line,
    on_one_line,
    tidy_lightning,
    tidy_messages,
    write_any_text,
)
from protometry.run_folder.command_line.stop_signals import SIGNALS, StopSignal, is_rank_zero

REMEDIES = {
    **dict.fromkeys(
        (errno.ENOSPC, errno.EDQUOT),
        "Free some space on its disk. {go_on}",
    ),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "Make the folder writable, or name another{flags}."),
    errno.EMFILE: "Allow more open files, such as with `ulimit -n 4096`.",
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG), "Name another folder{flags}."),
}
TOO_LARGE = re.compile("can't allocate memory|out of memory|[Oo]verflow when unpacking|sys.maxsize")
# what survivors of a distributed run say, over gloo and over NCCL, and torch of a process that loads images
PROCESS_LOST = re.compile(
    r"gloo.*(?:closed by peer|reset by peer|Broken pipe)|remote process exited|DataLoader worker \(pid"
)
PORT_IN_USE = re.compile(r"port: (\d+), .*EADDRINUSE", re.DOTALL)


def from_shell(command: Callable[[], object]) -> None:
    """Run a command line: 2 after a one-line error that the user can fix, 128 + n if stopped by the signal n.

    Args:
        command: parses ``sys.argv`` and works; the texts of its errors that need no traceback start with "Expected",
            unless they are of the operating system or of Lightning, about a combination of settings.
    """
    write_any_text()
    tidy_messages()
    keep_freed_memory()
    seldom_collect()
    atexit.register(gc.freeze)  # or Python searches all modules for garbage while it ends, for more than a second
    expect_signals()
    try:
        command()
        sys.stdout.flush()
        atexit.register(SIGNALS.finish)
    except BaseException as error:
        if SIGNALS.number is not None or isinstance(error, StopSignal):  # other errors come of it, as of ended workers
            _end_stopped(error)
        if isinstance(error, Exception):
            _end_failed(error)
        raise
    finally:
        SIGNALS.rest()


def seldom_collect() -> None:
    """Have Python seldom search all objects for garbage, which it would do dozens of times in imports."""
    gc.set_threshold(700, 10, 1000)


def expect_signals() -> None:
    """Have a signal end this process with one line also where :func:`from_shell` does not run yet, or no longer."""
    if SIGNALS.handled:
        return
    SIGNALS.listen()
    usual = sys.excepthook
    sys.excepthook = lambda kind, error, *rest: _end_stopped(error) if kind is StopSignal else usual(kind, error, *rest)


def _end_failed(error: Exception) -> None:
    """End with one line, or one for each problem; errors that need their traceback are left alone."""
    if isinstance(error, BrokenPipeError):  # what reads the output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    cause: BaseException | None = error  # the parser wraps what a constructor raises
    while cause is not None and not _needs_no_traceback(cause):
        cause = cause.__cause__
    if cause is None:
        return
    text = " ".join(str(cause).split())
    if isinstance(cause, OSError) and cause.errno in REMEDIES:
        remedy = REMEDIES[cause.errno].format(flags=_folder_flags(), go_on=SIGNALS.go_on())
        text = f"{text.rstrip('.')}. {remedy}"
    elif _is_too_large(cause):
        text = f"Out of memory, or a number too large: {text or type(cause).__name__}. Lower batch or model sizes."
    elif _is_process_lost(cause):
        if SIGNALS.arrives():
            _end_stopped(error)
        text = (
            "Another process of this run has ended: it printed an error, was stopped, or was killed, as for lack "
            f"of memory. {SIGNALS.go_on()}"
        )
    elif port := PORT_IN_USE.search(text):
        text = (
            f"Expected a free port by which the processes of this run meet, but {port[1]} is in use. Name another "
            "before the command, such as `MASTER_PORT=29511`."
        )
    said = line_by_line(str(cause)) if isinstance(cause, ListError) else on_one_line(text)
    print(f"error: {said}", file=sys.stderr)
    sys.exit(2)


def _end_stopped(error: BaseException) -> NoReturn:
    if SIGNALS.number is None and isinstance(error, StopSignal):  # of a sweep, which has handlers of its own
        SIGNALS.number = error.number
    if is_rank_zero():
        print(SIGNALS.said(), file=sys.stderr)
    SIGNALS.leave()
    sys.exit(128 + (SIGNALS.number or 0))


def _folder_flags() -> str:
    """The flags that name the folder in which this command writes."""
    given = {word.partition("=")[0] for word in sys.argv}
    training = Path(sys.argv[0]).stem == "train"
    flags = ["--runs", "--experiment"] if training else [flag for flag in ("--output", "--runs") if flag in given]
    return f" with {' or '.join(f'`{flag}`' for flag in flags)}" if flags else ""


def _needs_no_traceback(error: BaseException) -> bool:
    ours = isinstance(error, ValueError | TypeError | RuntimeError) and str(error).startswith("Expected")
    misconfigured = type(error).__name__ == "MisconfigurationException"  # of Lightning, which is slow to import
    known = misconfigured or isinstance(error, OSError) or _is_too_large(error) or _is_process_lost(error)
    known = known or bool(isinstance(error, RuntimeError) and PORT_IN_USE.search(str(error)))
    return ours or known or (isinstance(error, ValueError | RuntimeError) and _raised_by_lightning(error))


def _raised_by_lightning(error: BaseException) -> bool:
    """Whether it was raised by a line of Lightning, which checks some settings only when it needs them."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and str(frames[-1].f_globals.get("__name__")).startswith("lightning.")


def _is_process_lost(error: BaseException) -> bool:
    """Whether another process of the run is gone."""
    return isinstance(error, RuntimeError) and bool(PROCESS_LOST.search(str(error)))


def _is_too_large(error: BaseException) -> bool:
    """Whether something exceeded the memory or the range of numbers."""
    said = isinstance(error, RuntimeError | ValueError | TypeError) and error.__cause__ is None and str(error)
    return isinstance(error, MemoryError | OverflowError) or bool(said and TOO_LARGE.search(said))


@contextmanager
def trainer_settings() -> Iterator[None]:
    """Around the construction of a ``Trainer``: tidies its messages and raises one type of error for its settings.

    Raises:
        ValueError: with the reason.
    """
    from lightning.fabric.utilities.exceptions import MisconfigurationException

    tidy_lightning()
    try:
        yield
    except (ValueError, TypeError, ArithmeticError, MemoryError, MisconfigurationException) as error:
        reason = str(error) or type(error).__name__
        raise ValueError(f"Expected settings below `trainer` that Lightning accepts, but {reason}") from error
