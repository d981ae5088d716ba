"""Loggers of a run: TensorBoard, and for all of them where they write, what a resumed run continues, and pictures."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger, WandbLogger
from lightning.pytorch.utilities import rank_zero_info, rank_zero_only, rank_zero_warn
from PIL import Image

from protometry.callbacks.run.wandb_logger import RunWandbLogger, stored_run, why_no_wandb
from protometry.run_folder.command_line.messages import requires
from protometry.run_folder.folder import given_folder


class RunTensorBoardLogger(TensorBoardLogger):
    """Writes ``<save_dir>/tensorboard``; needs the extra ``tensorboard``.

    Args:
        save_dir: the run folder; the command line fills it in.
        resume_step: the checkpoint's ``global_step`` if the run is resumed: TensorBoard hides what the interrupted run
            wrote from there on, which is repeated. None for a fresh run.

    Raises:
        ValueError: without a folder or without the package.
    """

    def __init__(self, save_dir: str | None = None, resume_step: int | None = None) -> None:
        try:
            super().__init__(given_folder(save_dir), name="tensorboard", version="", purge_step=resume_step)
        except ModuleNotFoundError as error:
            raise ValueError(requires("tensorboard", "tensorboard")) from error


def place_loggers(loggers: Any, folder: Path, name: str, checkpoint: Mapping[str, Any]) -> Any:
    """Tell the configured loggers their folder and name and, on resume, where the earlier segment ended.

    An argument of a logger is filled in only if it is None.

    Returns:
        The same without loggers of W&B where its package cannot be used, which a warning says.
    """
    known = {
        "save_dir": str(folder),
        "name": name,
        "resume_step": checkpoint.get("global_step"),
        **stored_run(checkpoint),
    }
    configured = loggers if isinstance(loggers, list) else [loggers]
    for logger in configured:
        for argument, value in known.items():
            if argument in getattr(logger, "init_args", ()) and logger.init_args[argument] is None:
                logger.init_args[argument] = value
    kept = [logger for logger in configured if not _is_wandb(logger)]
    if len(kept) < len(configured) and (reason := why_no_wandb()):
        rank_zero_warn(f"The package wandb cannot be used ({reason}): the run continues without W&B.")
        return kept or False
    return loggers


def _is_wandb(logger: Any) -> bool:
    return str(getattr(logger, "class_path", "")).endswith(RunWandbLogger.__name__)


@rank_zero_only
def log_table(
    loggers: Iterable[Logger], key: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int
) -> None:
    """Send a table of texts, numbers and None to every logger that takes tables: W&B, and TensorBoard as text."""
    for logger in loggers:
        if isinstance(logger, RunWandbLogger):
            logger.log_table(key, list(columns), [list(row) for row in rows], step=step)
        elif isinstance(logger, TensorBoardLogger):
            lines = [columns, ["---"] * len(columns), *([_text(value) for value in row] for row in rows)]
            logger.experiment.add_text(key, "\n".join(f"| {' | '.join(line)} |" for line in lines), step)


def _text(value: Any) -> str:
    """A cell of a table in Markdown."""
    if value is None:
        return ""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("<", "&lt;")


@rank_zero_only
def log_images(
    loggers: Iterable[Logger], key: str, images: Sequence[Image.Image], captions: Sequence[str], step: int
) -> None:
    """Send images with captions to every logger that takes them; say once which do not, apart from tables of numbers.

    Raises:
        ValueError: if there is not one caption per image.
    """
    if len(images) != len(captions):
        raise ValueError(
            f"Expected argument `captions` to hold one text per image ({len(images)}), but got {len(captions)}."
        )
    for logger in loggers:
        if isinstance(logger, WandbLogger):
            logger.log_image(key, list(images), step=step, caption=list(captions))
        elif isinstance(logger, TensorBoardLogger):
            for index, image in enumerate(images):
                logger.experiment.add_image(f"{key}/{index:03d}", np.asarray(image), step, dataformats="HWC")
        elif not isinstance(logger, CSVLogger):
            say_images_skipped(type(logger).__name__)


def log_evaluation(
    loggers: Iterable[Logger],
    split: str,
    numbers: Mapping[str, float],
    table: tuple[Sequence[str], Sequence[Sequence[Any]]],
    pictures: Mapping[str, Image.Image],
    step: int,
) -> None:
    """Send numbers under keys that begin with the split, a table by family, and pictures, and finish the loggers."""
    loggers = list(loggers)
    if pictures:
        log_images(loggers, "media/evaluation", list(pictures.values()), list(pictures), step)
    log_table(loggers, f"tables/evaluation/{split}", *table, step)
    for logger in loggers:
        logger.log_metrics({f"{split}/{key}": value for key, value in numbers.items()}, step)
        logger.save()
        logger.finalize("success")


@functools.cache
def say_images_skipped(logger: str) -> None:
    """Say once of each kind of logger that it takes no images."""
    rank_zero_info(f"{logger} takes no images; they are in the run folder.")
