"""Whether a run may start in a folder, by the files there alone, which takes no time to find out."""

from __future__ import annotations

import json
import os
from pathlib import Path

from protometry.run_folder.command_line.user_path import shown
from protometry.run_folder.layout import (
    CONFIG,
    EVALUATION,
    HISTORY,
    LAST,
    METRICS,
    QUEUED,
    SPLIT,
    folder_of_run,
    is_run,
)
from protometry.run_folder.lock import LOCK, only_process

OF_A_RUN = (CONFIG, SPLIT, HISTORY, "checkpoints/*.ckpt", EVALUATION)  # what a run never overwrites


def refuse_taken(folder: Path, ckpt_path: str | None) -> None:
    """Refuse a run that cannot start, as far as the files of its folder show it; checkpoints are read later.

    Args:
        folder: of the run.
        ckpt_path: "last", a file, or None for a fresh run.

    Raises:
        FileNotFoundError: if "last" is requested and does not exist.
        ValueError: if another process uses the folder, or a fresh run would overwrite an earlier one.
    """
    if (folder / LOCK).exists():
        with only_process(folder):
            pass
    if ckpt_path == "last":
        last_of(folder)
    elif ckpt_path is None and (folder / LAST).exists():
        if not may_be_queued(folder) and not is_complete(folder):
            raise ValueError(holds_a_run(folder))
    elif ckpt_path is None:
        check_free(folder)


def last_of(folder: Path) -> Path:
    """The last checkpoint of a run.

    Raises:
        FileNotFoundError: if there is none.
    """
    last = folder / LAST
    if not last.is_file():
        raise FileNotFoundError(
            f"Expected {shown(last)} to resume from, but it does not exist. Leave `--ckpt_path` out to start the "
            "run, or name its folder with `--experiment`."
        )
    return last


def may_be_queued(folder: Path) -> bool:
    """Whether a cluster may have queued the run again, which then continues."""
    return any(folder.glob(QUEUED)) or int(os.environ.get("SLURM_RESTART_COUNT") or 0) > 0


def is_complete(folder: Path) -> bool:
    """Whether an evaluation of the run says that its training was complete."""
    try:
        content = json.loads((folder / EVALUATION / METRICS).read_text("utf-8"))
        return bool(content["training"]["complete"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def holds_a_run(folder: Path, resume: str = "Resume it with `--ckpt_path last`, or start") -> str:
    """The message where a fresh run meets an earlier one, with how to go on before "another"."""
    return f"Expected a folder without a run, but {shown(folder)} holds one. {resume} another with `--experiment NAME`."


def check_free(folder: Path) -> None:
    """Refuse to begin a run where it would overwrite what is there, or mix with another one.

    Raises:
        ValueError: if the folder holds files of a run, or lies in the folder of another run or around it.
    """
    found = sorted(str(path.relative_to(folder)) for pattern in OF_A_RUN for path in folder.glob(pattern))
    if found:
        problem = f"without files of a run, but {shown(folder)} holds {', '.join(found)}"
    elif above := next(filter(is_run, folder.resolve().parents), None):
        problem = f"outside of other runs, but {shown(folder)} lies in the run {above}"
    elif below := next(filter(is_run, map(folder_of_run, folder.rglob("*.ckpt"))), None):
        problem = f"without other runs, but {shown(folder)} holds the run {shown(below)}"
    else:
        return
    raise ValueError(f"Expected a folder {problem}. Name another with `--experiment NAME` or `--runs DIR`.")
