"""The runs of a sweep, several at a time: what is missing is trained, what was killed continues, what is done stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch

from rich.console import Console
from rich.live import Live
from rich.text import Text

from run_folder.messages import counted, did_you_mean, in_words
from sweeps.state import LOG, check_settings, last_line, note_settings, state_of
from sweeps.sweep import ROOT, Run, Sweep, read_sweep

SECONDS_BETWEEN_LOOKS = 0.5


def run(
    file: str, runs: str = "runs", jobs: int = 1, only: str | None = None, flags: str = "", dry_run: bool = False
) -> None:
    """Train and evaluate the runs of a sweep that are not done yet, and print the table of all that are.

    A run that was killed continues from its last epoch, one that fails does not stop the others, and a finished one is
    skipped: repeat the command to continue a sweep.

    Args:
        file: yaml of the sweep.
        runs: folder of all runs.
        jobs: runs at a time, on the same hardware; without OMP_NUM_THREADS, each gets its share of the cores.
        only: names of runs, separated by commas, ``*`` for any text; all by default.
        flags: further flags of every run, in quotes, such as where data lie: "--data.root DIR".
        dry_run: print the commands that would be run, and do nothing.
    """
    if jobs < 1:
        raise ValueError(f"Expected argument `jobs` to be at least 1, but got {jobs}.")
    sweep = read_sweep(file, runs, flags)
    chosen = choose(sweep, only)
    for each in chosen:
        check_settings(each)
    if dry_run:
        print("\n".join(_planned(each) for each in chosen))
        return
    work = Work(sweep, chosen, jobs)
    work.go_on()
    _print_end(work)
    if work.failed:
        sys.exit(1)


def choose(sweep: Sweep, only: str | None) -> list[Run]:
    """The requested runs, in their order.

    Raises:
        ValueError: for an unknown name, or a run that needs another one that is neither requested nor done.
    """
    patterns = [pattern.strip() for pattern in only.split(",")] if only is not None else ["*"]
    for pattern in patterns:
        if not any(fnmatch(name, pattern) for name in sweep.runs):
            raise ValueError(
                f"Expected argument `only` to name runs of {sweep.file}, but got {pattern!r}; they are "
                f"{', '.join(sweep.runs)}.{did_you_mean(pattern, sweep.runs)}"
            )
    chosen = [each for each in sweep.runs.values() if any(fnmatch(each.name, pattern) for pattern in patterns)]
    for each in chosen:
        for name in each.needs:
            if sweep.runs[name] not in chosen and state_of(sweep.runs[name]) != "done":
                raise ValueError(f"Expected {name}, which {each.name} needs, to be done. Name it in `only`, too.")
    return chosen


def start(each: Run, jobs: int) -> subprocess.Popen[bytes]:
    """Train a run in a process of its own, from its last epoch if it has one, with its output in its log.

    Args:
        each: the run.
        jobs: at a time, which share the cores.

    Returns:
        The process.
    """
    resume = state_of(each) == "begun"
    note_settings(each)
    threads = str(max(1, (os.cpu_count() or 1) // jobs))
    environment = {"OMP_NUM_THREADS": threads, **os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, str(ROOT / "protometry.py"), "train", *each.words(resume)]
    with (each.folder / LOG).open("ab") as log:
        log.write(f"$ {each.command(resume)}\n".encode())
        log.flush()
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Take SIGTERM for Ctrl-C, so that what is under way is ended first."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@dataclass
class Training:
    """A run under way.

    Args:
        run: which.
        process: that trains it.
        began: seconds of the clock.
    """

    run: Run
    process: subprocess.Popen[bytes]
    began: float


@dataclass
class Work:
    """What is left of a sweep.

    Args:
        sweep: the whole.
        chosen: the requested runs.
        jobs: at a time.
    """

    sweep: Sweep
    chosen: Sequence[Run]
    jobs: int
    failed: dict[str, str] = field(default_factory=dict)  # why, by name
    waiting: list[Run] = field(init=False)
    under_way: list[Training] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # that runs took

    def __post_init__(self) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        self.waiting = [each for each in self.chosen if state_of(each) != "done"]

    def go_on(self) -> None:
        """Train until nothing is left; an interrupt ends the runs under way as SIGTERM does, after their epoch."""
        begun = sum(state_of(each) == "begun" for each in self.waiting)
        done = len(self.chosen) - len(self.waiting)
        said = f"{done} done, {begun} to resume, {len(self.waiting) - begun} to start"
        self.console.print(f"{self.sweep.name}: {counted(len(self.chosen), 'run')}, {said}")
        try:
            with (
                ended_by_sigterm(),
                Live(console=self.console, get_renderable=self._lines, transient=True, refresh_per_second=2),
            ):
                while self.waiting or self.under_way:
                    self._start_ready()
                    time.sleep(SECONDS_BETWEEN_LOOKS)
                    self._look()
        except KeyboardInterrupt:
            self._stop()
            raise ValueError("Expected the sweep to end, but it was stopped. The same command resumes it.") from None

    def _start_ready(self) -> None:
        for each in list(self.waiting):
            if lost := [name for name in each.needs if name in self.failed]:
                self.waiting.remove(each)
                self._fail(each, f"it needs {lost[0]}")
            elif len(self.under_way) < self.jobs and all(state_of(self.sweep.runs[n]) == "done" for n in each.needs):
                self.waiting.remove(each)
                self._start(each)

    def _start(self, each: Run) -> None:
        said = "resumed" if state_of(each) == "begun" else "started"
        self.under_way.append(Training(each, start(each, self.jobs), time.monotonic()))
        self.console.print(f"{said}  {each.name}")

    def _look(self) -> None:
        for training in list(self.under_way):
            if training.process.poll() is None:
                continue
            self.under_way.remove(training)
            took = time.monotonic() - training.began
            if training.process.returncode == 0 and state_of(training.run) == "done":
                self.seconds.append(took)
                self.console.print(f"done     {training.run.name} in {took / 60:.1f} min · {self._left()}")
            else:
                self._fail(training.run, _why(training))

    def _fail(self, each: Run, reason: str) -> None:
        self.failed[each.name] = reason
        self.console.print(f"failed   {each.name}: {reason}", markup=False)

    def _left(self) -> str:
        """How many runs are left, and how long they will take at the mean pace of those done."""
        left = len(self.waiting) + len(self.under_way)
        if not left:
            return "none left"
        spent = sum(time.monotonic() - training.began for training in self.under_way)
        mean = sum(self.seconds) / len(self.seconds) if self.seconds else 0.0
        words = in_words(max(0.0, mean * left - spent) / self.jobs) if mean else ""
        return ", ".join(filter(None, [f"{left} left", words]))

    def _lines(self) -> Text:
        """A line for each run under way, with its epoch and time left, and one for the sweep."""
        width = self.console.width
        lines = [f"{each.run.name}  {last_line(each.run)}" for each in self.under_way]
        return Text("\n".join(line[:width] for line in [*lines, f"{self.sweep.name}: {self._left()}"]))

    def _stop(self) -> None:
        for training in self.under_way:
            training.process.send_signal(signal.SIGTERM)
        for training in self.under_way:
            training.process.wait()


def _planned(each: Run) -> str:
    state = state_of(each)
    return f"# {each.name} is done" if state == "done" else each.command(resume=state == "begun")


def _why(training: Training) -> str:
    """Why a run failed: the signal that killed it, or the last line of its log."""
    status = training.process.returncode
    if status < 0:
        return f"killed by {signal.Signals(-status).name}; the same command resumes it"
    return last_line(training.run) or f"exit status {status}"


def _print_end(work: Work) -> None:
    """The runs that failed, with the last line and the place of their logs; then the table of those that are done."""
    from reports.results.runs import collect
    from reports.tables.formats import text_of

    for name, reason in work.failed.items():
        work.console.print(f"\n{name} failed: {reason}\n  {work.sweep.runs[name].folder / LOG}", markup=False)
    done = [each.folder for each in work.chosen if state_of(each) == "done"]
    if done:
        print(f"\n{text_of(collect(done), 'markdown')}")
