"""How far a run has got, read from its folder, and whether it was begun with the present settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import yaml

from run_folder.atomic import write_whole
from run_folder.schema import read_json
from sweeps.sweep import ROOT, Run

State = Literal["done", "begun", "missing"]
RECORD, LOG = "sweep.json", "train.log"
FREE_FLAGS = ("data.root", "data.num_workers", "data.eval_batch_size", "runs")  # change no result


def state_of(run: Run) -> State:
    """Whether a run is evaluated, has a checkpoint to continue from, or neither."""
    if (run.folder / "evaluation" / "metrics.json").is_file():  # written when the evaluation is whole
        return "done"
    return "begun" if (run.folder / "checkpoints" / "last.ckpt").is_file() else "missing"


def check_settings(run: Run) -> None:
    """Refuse a run that was begun with other settings or outside the sweep; without a checkpoint, it starts again.

    Raises:
        ValueError: naming the config or the flag that has changed.
    """
    if state_of(run) == "missing":
        return
    record = run.folder / RECORD
    if not record.is_file():
        raise ValueError(
            f"Expected {run.folder} to be free or a run of this sweep, but it holds another. Rename the sweep."
        )
    before, now = read_json(record, f"Remove {run.folder} to train it once more."), settings(run)
    if changed := [name for name in {**before, **now} if before.get(name) != now.get(name)]:
        raise ValueError(
            f"Expected {run.folder} to continue with the settings it began with, but {', '.join(changed)} "
            f"{'has' if len(changed) == 1 else 'have'} changed since. Rename the sweep, or remove that folder."
        )


def note_settings(run: Run) -> None:
    """Write what a run is trained with, before it is."""
    write_whole(run.folder / RECORD, json.dumps(settings(run), indent=1) + "\n")


def settings(run: Run) -> dict[str, Any]:
    """The content of a run's configs, and its flags, by name; without what changes no result."""
    values: dict[str, Any] = {}
    for flag, value in zip(*(iter(_pairs(run.arguments)),) * 2, strict=True):
        if flag == "--config":
            path = Path(value) if Path(value).is_file() else ROOT / value
            values[value] = yaml.safe_load(path.read_text("utf-8"))
        elif flag.removeprefix("--") not in FREE_FLAGS:
            values[flag] = value
    plain: dict[str, Any] = json.loads(json.dumps(values, default=str))
    return plain


def last_line(run: Run) -> str:
    """The last line of a run's log: of one that is trained, its epoch and the time left; of one that failed, why."""
    log = run.folder / LOG
    lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()] if log.is_file() else []
    return lines[-1].strip() if lines else ""


def _pairs(arguments: tuple[str, ...]) -> list[str]:
    """Flags and values in turn, also those joined by an equals sign."""
    words: list[str] = []
    for word in arguments:
        words += word.split("=", 1) if len(words) % 2 == 0 and "=" in word else [word]
    return words
