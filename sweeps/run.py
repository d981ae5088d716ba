"""The runs of a sweep, several at a time: what is missing is trained, what was killed continues, what is done stays."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import yaml
from rich.console import Console
from rich.live import Live
from rich.text import Text

from protometry.run_folder.command_line.messages import counted, did_you_mean, in_words
from protometry.run_folder.command_line.stop_signals import SIGNALS, StopSignal, handled_by
from protometry.run_folder.lock import FolderInUseError, only_process
from protometry.sweeps.state import LOG, check_settings, last_line, read_settings, state_of
from protometry.sweeps.sweep import Run, Sweep, read_sweep

SECONDS_BETWEEN_LOOKS = 0.5
FIT = (sys.executable, "-m", "protometry", "train", "fit")


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
    settings = read_settings(sweep.runs.values())
    for each in sweep.runs.values():  # also of those that are not chosen: tables average over seeds and folds
        check_settings(each, settings[each.name])
    if dry_run:
        print("\n".join(_planned(each) for each in chosen))
        return
    work = Work(sweep, chosen, jobs, settings)
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


def start(each: Run, arguments: Sequence[str], jobs: int) -> subprocess.Popen[bytes]:
    """Train a run in a process of its own, from its last epoch if it has one, with its output in its log.

    The log is locked as long as that process lives, so that no other sweep starts the same run. The cores are shared by
    ``jobs`` trainings.

    Raises:
        FolderInUseError: if the run is already being trained.
    """
    threads = str(max(1, (os.cpu_count() or 1) // jobs))
    environment = {"OMP_NUM_THREADS": threads, **os.environ, "PYTHONUNBUFFERED": "1"}
    each.folder.mkdir(parents=True, exist_ok=True)
    with (each.folder / LOG).open("ab") as log:
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUseError(f"Expected no other sweep to train {each.folder}, but one does.") from None
        except OSError:  # a network disk without locks, which the next line remarks on
            pass
        with only_process(each.folder):  # no training of another kind
            resume = state_of(each) == "begun"
            log.write(f"$ {each.command(resume)}\n".encode())
            log.flush()
            command = [*FIT, *arguments]
            command += ["--ckpt_path", "last"] if resume else []
            return subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)


class Interrupts:
    """Counts Ctrl-C and the signals that end a process instead of ending at once, so that trainings are ended first."""

    def __enter__(self) -> Self:
        self.count, self.last = 0, 0
        self._handled = handled_by(self._add)
        self._handled.__enter__()
        return self

    def stop(self) -> None:
        """End the command, now that its trainings have ended, if there was a signal."""
        if self.count:
            SIGNALS.go_on = lambda: "The same command resumes it."
            raise StopSignal(self.last)

    def __exit__(self, *_: object) -> None:
        self._handled.__exit__(None, None, None)

    def _add(self, number: int, *_: object) -> None:
        self.count, self.last = self.count + 1, number


def end(processes: Mapping[str, subprocess.Popen[bytes]], interrupts: Interrupts, quiet: bool = False) -> None:
    """End trainings with SIGTERM and wait for them; a further interrupt leaves and names the rest."""
    alive, before = _alive(processes), interrupts.count
    for process in processes.values():
        process.send_signal(signal.SIGTERM)  # nothing if it has ended
    if alive and not quiet:
        print(f"stopping {alive}; another Ctrl-C does not wait for that", file=sys.stderr)
    while alive and interrupts.count == before:
        time.sleep(SECONDS_BETWEEN_LOOKS)
        alive = _alive(processes)
    if alive:
        print(f"still running: {alive}; `kill -9 NUMBER` ends a process", file=sys.stderr)


def _alive(processes: Mapping[str, subprocess.Popen[bytes]]) -> str:
    alive = {name: process.pid for name, process in processes.items() if process.poll() is None}
    return ", ".join(f"{name} (process {number})" for name, number in alive.items())


@dataclass
class RunningProcess:
    """A run under way."""

    run: Run
    process: subprocess.Popen[bytes]
    began: float


@dataclass
class Work:
    """What is left of a sweep."""

    sweep: Sweep
    chosen: Sequence[Run]
    jobs: int
    settings: Mapping[str, Mapping[str, Any]]
    failed: dict[str, str] = field(default_factory=dict)  # why, by name
    waiting: list[Run] = field(init=False)
    elsewhere: set[str] = field(default_factory=set)  # names of runs that other processes train
    under_way: list[RunningProcess] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # that runs took

    def __post_init__(self) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        self.waiting = [each for each in self.chosen if state_of(each) != "done"]

    def go_on(self) -> None:
        """Train until nothing is left; however that ends, the runs under way are ended or named."""
        begun = sum(state_of(each) == "begun" for each in self.waiting)
        done = len(self.chosen) - len(self.waiting)
        said = f"{done} done, {begun} to resume, {len(self.waiting) - begun} to start"
        self.console.print(f"{self.sweep.name}: {counted(len(self.chosen), 'run')}, {said}")
        with Interrupts() as interrupts, TemporaryDirectory(prefix="sweep-") as folder:
            self.fixed = Path(folder)
            try:
                with Live(console=self.console, get_renderable=self._lines, transient=True, refresh_per_second=2):
                    while (self.waiting or self.under_way) and not interrupts.count:
                        self._start_ready()
                        time.sleep(SECONDS_BETWEEN_LOOKS)
                        self._look()
            finally:
                end({training.run.name: training.process for training in self.under_way}, interrupts)
            interrupts.stop()

    def _start_ready(self) -> None:
        for each in list(self.waiting):
            try:
                settled = self._is_settled(each)
            except FolderInUseError as other:
                settled = False
                if each.name not in self.elsewhere:
                    self.elsewhere.add(each.name)
                    self.console.print(f"waiting  {each.name} is under way elsewhere: {other}", markup=False)
            except (ValueError, OSError) as error:
                settled = True
                self._fail(each, str(error))
            if settled:
                self.waiting.remove(each)

    def _is_settled(self, each: Run) -> bool:
        """Whether a run waits no longer, since it has just been started, or has been trained elsewhere.

        Raises:
            FolderInUseError: while it is being trained elsewhere.
            ValueError: if it will not be trained.
            OSError: for the same reason.
        """
        if lost := [name for name in each.needs if name in self.failed]:
            raise ValueError(f"it needs {lost[0]}")
        done = state_of(each) == "done"
        if done or (len(self.under_way) < self.jobs and all(self._is_done(name) for name in each.needs)):
            check_settings(each, self.settings[each.name])
            if done:
                self.console.print(f"done     {each.name}, elsewhere")
            else:
                self._start(each)
            return True
        return False

    def _is_done(self, name: str) -> bool:
        return state_of(self.sweep.runs[name]) == "done"

    def _start(self, each: Run) -> None:
        said = "resumed" if state_of(each) == "begun" else "started"
        fixed = self.fixed / f"{each.name}.yaml"
        fixed.write_text(yaml.safe_dump(self.settings[each.name], sort_keys=False), "utf-8")
        process = start(each, ["--config", str(fixed)], self.jobs)
        self.under_way.append(RunningProcess(each, process, time.monotonic()))
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
        time_left = in_words(max(0.0, mean * left - spent) / self.jobs) if mean else ""
        return ", ".join(filter(None, [f"{left} left", time_left]))

    def _lines(self) -> Text:
        """A line for each run under way, with its epoch and time left, and one for the sweep."""
        width = self.console.width
        lines = [f"{each.run.name}  {last_line(each.run)}" for each in self.under_way]
        return Text("\n".join(line[:width] for line in [*lines, f"{self.sweep.name}: {self._left()}"]))


def _planned(each: Run) -> str:
    state = state_of(each)
    return f"# {each.name} is done" if state == "done" else each.command(resume=state == "begun")


def _why(training: RunningProcess) -> str:
    """Why a run failed: the signal that killed it, or the last line of its log."""
    status = training.process.returncode
    if status < 0:
        return f"killed by {signal.Signals(-status).name}; the same command resumes it"
    return last_line(training.run) or f"exit status {status}"


def _print_end(work: Work) -> None:
    """The runs that failed, with the last line and the place of their logs; then the table of those that are done."""
    from protometry.evaluation.results.runs import collect
    from protometry.evaluation.tables.run_tables import text_of

    for name, reason in work.failed.items():
        work.console.print(f"\n{name} failed: {reason}\n  {work.sweep.runs[name].folder / LOG}", markup=False)
    done = [each.folder for each in work.chosen if state_of(each) == "done"]
    if done:
        print(f"\n{text_of(collect(done), 'markdown')}")
