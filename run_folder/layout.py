"""Where a run keeps what: names of files and folders below the folder of a run, and of an evaluation in it."""

from __future__ import annotations

from pathlib import Path, PurePath

CONFIG = "config.yaml"
SPLIT = "split.json"
HISTORY = "metrics.csv"  # of the training
LAST = "checkpoints/last.ckpt"
BEST = "checkpoints/best.ckpt"
EVALUATION = "evaluation"  # the first one; others are folders in it
METRICS = "metrics.json"  # of an evaluation, written last
IMAGES = "images.csv"
REPORT = "report"
QUEUED = "hpc_ckpt_*.ckpt"  # Lightning's name for states of a job that is queued again


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


def run_name(model: str, data: str, fold: int | None, seed: int) -> str:
    """The folder of a run without a name.

    Args:
        model: import path of the model class.
        data: import path of the data module class.
        fold: fold of the data, if any.
        seed: seed of the run.

    Example:
        >>> run_name("protometry.lightning_modules.ProtoPNet", "protometry.datamodules.Cub200", 2, 0)
        'cub200/protopnet-fold2-seed0'
    """
    parts = [model.rsplit(".", 1)[-1].lower(), *([f"fold{fold}"] if fold is not None else []), f"seed{seed}"]
    return f"{data.rsplit('.', 1)[-1].lower()}/{'-'.join(parts)}"


def check_name(experiment: str, where: str = "argument `experiment`") -> str:
    """The name of a run, which must be a separate folder below the folder of all runs.

    Args:
        experiment: such as ``quickstart`` or ``cub200/protopnet-fold0``.
        where: it was given, for the error.

    Raises:
        ValueError: if the name is empty, absolute, leads out of the folder of all runs or cannot be printed.
    """
    path = PurePath(experiment)
    if (
        not experiment.strip()
        or not path.parts
        or path.is_absolute()
        or ".." in path.parts
        or not experiment.isprintable()
    ):
        raise ValueError(
            f"Expected {where} to name a folder below `--runs`, but got {experiment!r}. To store runs "
            "elsewhere, pass `--runs DIR`."
        )
    return experiment
