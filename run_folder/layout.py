"""Where a run keeps what: names of files and folders below the folder of a run, and of an evaluation in it."""

from __future__ import annotations

from pathlib import Path

CONFIG = "config.yaml"
SPLIT = "split.json"
HISTORY = "metrics.csv"  # of the training
LAST = "checkpoints/last.ckpt"
BEST = "checkpoints/best.ckpt"
EVALUATION = "evaluation"  # the first one; others are folders in it
METRICS = "metrics.json"  # of an evaluation, written last
IMAGES = "images.csv"
REPORT = "report"


def folder_of_run(checkpoint: Path) -> Path:
    """The folder of the run a checkpoint belongs to.

    Example:
        >>> [folder_of_run(Path(path)).name for path in ("runs/x/checkpoints/last.ckpt", "here/mine.ckpt")]
        ['x', 'here']
    """
    return checkpoint.parent.parent if checkpoint.parent.name == "checkpoints" else checkpoint.parent


def run_of_evaluation(evaluation: Path) -> Path:
    """The folder of the run an evaluation belongs to; one that was moved belongs to the folder it lies in.

    Example:
        >>> [run_of_evaluation(Path(path)).name for path in ("runs/x/evaluation", "runs/x/evaluation/last-val")]
        ['x', 'x']
    """
    first = next((folder for folder in (evaluation, *evaluation.parents) if folder.name == EVALUATION), None)
    return evaluation if first is None else first.parent


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run."""
    return (folder / CONFIG).exists() and any(folder.glob("checkpoints/*.ckpt"))
