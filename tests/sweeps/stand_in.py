"""What stands in for trainings in tests of sweeps: settings that need no parser, and a program that trains nothing."""

import subprocess
import sys
import time
from pathlib import Path

import yaml

from protometry.sweeps import run as runner
from protometry.sweeps import tune as tuner

ROOT = Path(__file__).parents[2]

# the beginning of a program that stands in for a training: `settings` of the run in `folder`, whose lock it holds
PROGRAM = f"""
import os, pathlib, signal, sys, time
sys.path.insert(0, {str(ROOT)!r})
import yaml
from protometry.run_folder.lock import only_process
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
settings = yaml.safe_load(open(words.pop("--config"))) | {{name[2:]: value for name, value in words.items()}}
runs = pathlib.Path(settings["runs"])
folder = runs / settings["experiment"]
lock = only_process(folder)
lock.__enter__()
"""


def read_settings(runs):
    """The content of configs and the flags of each run, by name; ``data.root`` is an argument of the data."""
    settings = {run.name: {} for run in runs}
    for run in runs:
        for flag, value in zip(run.arguments[::2], run.arguments[1::2], strict=True):
            if flag == "--config":
                settings[run.name] |= yaml.safe_load(Path(value).read_text()) or {}
            elif flag == "--data.root":
                data = {"class_path": "protometry.datamodules.Cub200", "init_args": {"root": value}}
                settings[run.name]["data"] = data
            else:
                settings[run.name][flag[2:]] = value
    return settings


def install(monkeypatch, folder, program):
    """Have sweeps in this process, and those of :func:`start`, train with a program."""
    (folder / "program.py").write_text(PROGRAM + program)
    monkeypatch.setattr(runner, "FIT", (sys.executable, str(folder / "program.py")))
    monkeypatch.setattr(runner, "read_settings", read_settings)
    monkeypatch.setattr(tuner, "read_settings", read_settings)
    monkeypatch.setattr(runner, "SECONDS_BETWEEN_LOOKS", 0.01)


def start(folder, words, before=""):
    """A command of sweeps in a process of its own, with the same program; names instead of a table end it."""
    code = f"""
import signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup, and SIGINT, which a shell in the background ignores
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, {str(ROOT)!r})
from protometry.sweeps import run, tune
from tests.sweeps import stand_in
run.FIT = (sys.executable, {str(folder / "program.py")!r})
run.read_settings = tune.read_settings = stand_in.read_settings
run.SECONDS_BETWEEN_LOOKS = tune.SECONDS_BETWEEN_LOOKS = 0.01
run._print_end = lambda work: print(work.failed, "done:", [one.name for one in work.chosen if work._is_done(one.name)])
{before}
from protometry.sweeps.__main__ import main, from_shell
from_shell(lambda: main({words!r}))
"""
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code], stdout=pipe, stderr=pipe, text=True)


def wait_for(condition, process=None):
    """Until something holds; a process that ends before is an error, and so is a minute."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + 60
        assert process is None or process.poll() is None, process.stderr.read()
        time.sleep(0.01)
