"""Runs that are killed between two changes of files, or start twice, lose nothing and spoil nothing."""

import json
import os
import signal
import sys
import time

import pytest

from protometry.run_folder.lock import LOCK
from tests.integration.test_kills import FORK
from tests.tiny_runs import differences, fit, state

EVALUATED = ("--test_after_fit=true", "--evaluation.suite=[general]")


def run_until(folder, moment, changes, *more):
    """A run that kills itself just before a change of a file in its folder, counted from 0."""

    def before(event, arguments):
        if event not in ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir"):
            return
        reads = event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if not reads and str(arguments[0]).startswith(str(folder)):
            if changes.value == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            changes.value += 1

    sys.addaudithook(before)
    with open(os.devnull, "w") as sys.stdout, open(os.devnull, "w") as sys.stderr:
        fit(folder, *EVALUATED, *more, drawn=True)


def train(folder, *more, moment=-1, seconds=None):
    """Its exit code, and how many changes it made."""
    changes = FORK.Value("i", 0)
    if (folder / "checkpoints" / "last.ckpt").exists():
        more = (*more, "--ckpt_path", "last")
    process = FORK.Process(target=run_until, args=(folder, moment, changes, *more))
    process.start()
    if seconds is not None:
        time.sleep(seconds)
        process.kill()
    process.join()
    return process.exitcode, changes.value


def lost(folder, straight):
    """What a run lacks that one that was not killed has, or has otherwise."""
    result = [name for name in ("last", "best") if differences(state(folder, name), state(straight, name))]
    for path in {path.relative_to(run) for run in (folder, straight) for path in run.rglob("*") if path.name != LOCK}:
        first, second = folder / path, straight / path
        if not (first.exists() and second.exists()):
            result.append(str(path))
        elif path.name == "metrics.json":
            results = [json.loads(file.read_text()) | {"timing": None} for file in (first, second)]
            result += [str(path)] if results[0] != results[1] else []
        elif path.suffix in (".csv", ".png") and first.read_bytes() != second.read_bytes():
            result.append(str(path))
    return result


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A run that was not killed, and how many changes of files it made."""
    folder = tmp_path_factory.mktemp("straight") / "run"
    code, changes = train(folder)
    assert code == 0
    return folder, changes


@pytest.mark.parametrize("share", [0.02, 0.3, 0.5, 0.7, 0.9, 0.99])
def test_killed_between_two_changes(share, tmp_path, straight):
    folder = tmp_path / "run"
    assert train(folder, moment=int(share * straight[1]))[0] == -signal.SIGKILL
    assert train(folder)[0] == 0
    assert lost(folder, straight[0]) == []
