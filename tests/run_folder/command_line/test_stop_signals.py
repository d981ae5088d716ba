"""Signals end a command with one line and 128 + n, wherever it is; who uses the package keeps other handlers."""

import signal
import subprocess
import sys
import time
from unittest import mock

import pytest
from lightning import Trainer
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment

from protometry.run_folder.command_line import stop_signals
from protometry.run_folder.command_line.ending import from_shell
from protometry.run_folder.command_line.stop_signals import ENDING, SIGNALS, StopSignal
from protometry.run_folder.command_line.stopping import stop_together

HANDLERS = [signal.getsignal(number) for number in ENDING]
BEGIN = """
import os, signal, sys, time
from protometry.run_folder.command_line import stop_signals
from protometry.run_folder.command_line.ending import from_shell
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a process in the background lacks
stop_signals.SECONDS_TO_STOP = stop_signals.AT_ONCE = 0.2
number = int(sys.argv[1])
class Deaf:
    def __del__(self):
        signal.raise_signal(number)
def forked():
    if os.fork() == 0:
        signal.raise_signal(number)
    signal.raise_signal(os.wait()[1] & 127)
def twice():
    try:
        signal.raise_signal(number)
    finally:
        time.sleep(0.5)
        os.kill(os.getpid(), number)
        time.sleep(60)
def with_workers():
    try:
        signal.raise_signal(number)
    finally:
        raise RuntimeError("DataLoader worker is killed by signal")
def held():
    stop_signals.SIGNALS.hold()
    signal.raise_signal(number)
    time.sleep(0.5)
    print("saved")
    try:
        stop_signals.SIGNALS.release()
    finally:
        print("tidied up")
"""


def stopped(command, number):
    """Exit status, output and errors of a command that gets a signal."""
    call = [sys.executable, "-c", f"{BEGIN}\nfrom_shell(lambda: {command})", str(int(number))]
    result = subprocess.run(call, capture_output=True, text=True, check=False, timeout=30)
    return result.returncode, result.stdout, result.stderr.strip()


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_takes_one_line(number):
    name = "Ctrl-C" if number == signal.SIGINT else number.name
    said = f"Stopped by {name}. Run the command again."
    assert stopped("signal.raise_signal(number)", number) == (128 + number, "", said)


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("twice()", ""),
        ("with_workers()", ""),
        ("(id(Deaf()), time.sleep(60))", ""),  # what is raised there is lost
        ("held()", "saved\ntidied up\n"),
    ],
)
def test_nothing_keeps_a_command_from_ending(command, output):
    code, said, error = stopped(command, signal.SIGTERM)
    assert (code, said) == (143, output)
    assert error.endswith("Stopped by SIGTERM. Run the command again.")
    assert "Traceback" not in error.split("Exception ignored")[0]


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_behind_the_command_takes_one_line_too(number):
    """While Python ends, where its default would be a traceback."""
    name = "Ctrl-C" if number == signal.SIGINT else number.name
    command = "__import__('atexit').register(signal.raise_signal, number)"
    assert stopped(command, number) == (128 + number, "", f"Stopped by {name}. The command was complete.")


def test_a_forked_process_ends_as_any_other():
    """A worker has no part in what the command does; its parent then raises the signal that ended it."""
    assert stopped("forked()", signal.SIGUSR1) == (138, "", "Stopped by SIGUSR1. Run the command again.")


def test_a_signal_that_is_ignored_stays_ignored():
    command = "(signal.raise_signal(number), print('went on'))"
    code = f"{BEGIN}\nsignal.signal(number, signal.SIG_IGN)\nfrom_shell(lambda: {command})"
    call = [sys.executable, "-c", code, str(int(signal.SIGHUP))]
    assert subprocess.run(call, capture_output=True, text=True, check=True).stdout == "went on\n"  # as after nohup


def test_a_library_changes_no_handlers():
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, barebones=True)
    before = trainer._signal_connector
    stop_together(trainer)
    assert trainer._signal_connector is before
    from_shell(lambda: None)
    assert [signal.getsignal(number) for number in ENDING] == HANDLERS


class Dictionary:
    """A store of a single process."""

    def __init__(self):
        self.content = {}

    def set(self, key, value):
        self.content[key] = value.encode()

    def get(self, key):
        return self.content[key]

    def check(self, keys):
        return all(key in self.content for key in keys)


@pytest.fixture
def listening():
    SIGNALS.listen()
    yield SIGNALS
    SIGNALS.rest()


def test_a_signal_is_told_to_the_other_processes_and_heard_from_them(listening):
    store, launched = Dictionary(), []
    listening.launched.append(launched.append)
    listening.share(store)
    store.set(stop_signals.KEY, str(int(signal.SIGHUP)))
    with pytest.raises(StopSignal) as heard:
        time.sleep(30)
    assert heard.value.number == listening.number == signal.SIGHUP
    listening.rest()
    listening.listen()
    told = Dictionary()
    listening.launched.append(launched.append)
    listening.share(told)
    with pytest.raises(StopSignal):
        signal.raise_signal(signal.SIGTERM)
    while not told.content:
        time.sleep(0.01)
    listening.leave()
    assert told.content == {stop_signals.KEY: b"15"}
    assert launched[-1] == signal.SIGTERM


def test_slurm_requeues_a_job_as_before(listening, monkeypatch):
    for name, value in {"NTASKS": 1, "JOB_ID": 1, "PROCID": 0, "LOCALID": 0, "NODEID": 0, "JOB_NAME": "x"}.items():
        monkeypatch.setenv(f"SLURM_{name}", str(value))
    before = [signal.getsignal(number) for number in ENDING]
    trainer = Trainer(accelerator="cpu", barebones=True, plugins=[SLURMEnvironment()])
    stop_together(trainer)
    with mock.patch.object(trainer._signal_connector, "_slurm_sigusr_handler_fn") as requeue:
        trainer._signal_connector.register_signal_handlers()
        signal.raise_signal(signal.SIGUSR1)
    requeue.assert_called_once()
    assert [signal.getsignal(number) for number in ENDING[:3]] == before[:3]
    trainer._signal_connector.teardown()
    assert [signal.getsignal(number) for number in ENDING] == before
