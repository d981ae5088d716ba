"""How far a run has got, read from its folder, and whether it was begun with the settings requested now."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any, Literal

from protometry.run_folder.command_line.messages import counted
from protometry.run_folder.command_line.progress import track
from protometry.run_folder.command_line.yaml_files import read_yaml
from protometry.run_folder.layout import CONFIG, EVALUATION, LAST, METRICS
from protometry.run_folder.schema import check_content
from protometry.run_folder.settings import changed_settings
from protometry.scripts import config_of_ours
from protometry.sweeps.sweep import Run

State = Literal["done", "begun", "missing"]
LOG = "train.log"
SHOWN = 3  # runs with the same mistake


def state_of(run: Run) -> State:
    """Whether a run is evaluated, has a checkpoint to continue from, or neither."""
    if (run.folder / EVALUATION / METRICS).is_file():  # written when the evaluation is whole
        return "done"
    return "begun" if (run.folder / LAST).is_file() else "missing"


def read_settings(runs: Iterable[Run]) -> dict[str, dict[str, Any]]:
    """The settings of runs, parsed by ``train.py`` from their configs and flags.

    Returns:
        By name, the content that their ``config.yaml`` would have.

    Raises:
        ValueError: with everything that ``train.py`` would refuse, and the runs that it concerns.
    """
    several = list(runs)
    print(f"reading the settings of {counted(len(several), 'run')} …", file=sys.stderr, flush=True)
    from protometry.scripts.train import settings_reader  # imports Lightning, which takes seconds

    reader = settings_reader()
    settings: dict[str, dict[str, Any]] = {}
    mistakes: dict[str, list[str]] = {}
    for run in track(several, "Reading settings"):
        said = StringIO()
        try:
            with redirect_stderr(said), redirect_stdout(said):
                settings[run.name] = reader.read([*map(config_of_ours, run.fit_arguments(resume=False))])
        except SystemExit as end:
            line = said.getvalue().strip().partition("error: ")[2]
            mistakes.setdefault(line if end.code else "a flag prints something instead of training", []).append(
                run.name
            )
        except ValueError as error:
            mistakes.setdefault(str(error), []).append(run.name)
    if mistakes:
        lines = [f"{line.rstrip('.')} (in {_named(names)})" for line, names in mistakes.items()]
        raise ValueError(f"Expected settings that `train.py fit` accepts, but it says: {'; '.join(lines)}.")
    return settings


def _named(names: list[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {counted(more, 'more run')}" if more > 0 else "")


def check_settings(run: Run, settings: Mapping[str, Any]) -> None:
    """Refuse a run that was begun with other settings; without a checkpoint, it starts from scratch.

    Raises:
        ValueError: naming each argument that has changed, with both values.
    """
    file, state = run.folder / CONFIG, state_of(run)
    if state == "missing" or (state == "begun" and not file.is_file()):  # killed before the file was written
        return
    if not file.is_file():
        raise ValueError(
            f"Expected {run.folder} to be free or a run of this sweep, but it lacks {file.name}. Rename the sweep."
        )
    before = read_yaml(file)
    check_content(dict[str, Any], before, file, f"Remove {run.folder} to train it from scratch.")
    if changed := changed_settings(before, settings):
        raise ValueError(
            f"Expected {run.folder} to have the settings of the sweep, but it has others. {'; '.join(changed)}. Rename "
            "the sweep, or remove that folder."
        )


def last_line(run: Run) -> str:
    """The last line of a run's log: of one that is trained, its epoch and the time left; of one that failed, why."""
    log = run.folder / LOG
    lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()] if log.is_file() else []
    return lines[-1].strip() if lines else ""
