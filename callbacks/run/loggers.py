"""Loggers of any kind in a run: where they write, what a resumed one continues, and images for those that take them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from lightning.pytorch.loggers import Logger, TensorBoardLogger, WandbLogger
from lightning.pytorch.utilities import rank_zero_info, rank_zero_only
from PIL import Image

from callbacks.run.wandb_logger import stored_run


def place_loggers(loggers: Any, folder: Path, name: str, checkpoint: Mapping[str, Any]) -> None:
    """Tell the configured loggers their folder and name and, on resume, where the earlier segment ended.

    Args:
        loggers: parsed logger configuration; an argument of a logger is filled in only if it is None.
        folder: the run folder.
        name: of the run, to show.
        checkpoint: the checkpoint resumed from, or an empty mapping.
    """
    known = {
        "save_dir": str(folder),
        "name": name,
        "resume_step": checkpoint.get("global_step"),
        **stored_run(checkpoint),
    }
    for logger in loggers if isinstance(loggers, list) else [loggers]:
        for argument, value in known.items():
            if argument in getattr(logger, "init_args", ()) and logger.init_args[argument] is None:
                logger.init_args[argument] = value


@rank_zero_only
def log_images(
    loggers: Iterable[Logger], key: str, images: Sequence[Image.Image], captions: Sequence[str], step: int
) -> None:
    """Send images to every logger that takes them; say once which do not.

    Args:
        loggers: the trainer's loggers.
        key: where to show them, such as ``media/prototypes``.
        images: any number.
        captions: one per image; TensorBoard shows none.
        step: the trainer's ``global_step``.

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
        else:
            say_images_skipped(type(logger).__name__)


@functools.cache
def say_images_skipped(logger: str) -> None:
    """Say once of each kind of logger that it takes no images.

    Args:
        logger: name of its class.
    """
    rank_zero_info(f"{logger} takes no images; they are in the run folder.")
