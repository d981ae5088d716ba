"""The logger that writes to Weights & Biases from the run folder, and what a resumed run continues of it.

The id of the W&B run is drawn by :class:`RunWandbLogger`, stored in every checkpoint by :func:`store_run` together with
the best values so far, and handed to the logger of a resumed run by :func:`stored_run`.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import wandb
from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.pytorch.loggers import Logger, WandbLogger
from lightning.pytorch.utilities import rank_zero_info, rank_zero_only

from callbacks.run.folder import given_folder

CHECKPOINT_KEY = "logger_run_ids"
BEST_KEY = "logger_best_values"


class RunWandbLogger(WandbLogger):
    """Logs to Weights & Biases in the run folder; offline unless credentials are configured, and never asks.

    ``WANDB_MODE`` (or ``wandb offline``) wins over what is found. The step axis of every key is
    ``trainer/global_step``. The W&B run is closed at the end of every ``fit`` or ``test``; later rows continue it.

    Args:
        save_dir: the run folder, filled in by the command line; local files land in ``<save_dir>/wandb``.
        project: W&B project.
        name: name to show; the command line fills in the experiment.
        run_id: id of the run; the same id continues the same run. None draws one.
        best: the best values of the run so far, by key; of a run that is resumed.

    Raises:
        ValueError: without a folder; when the run starts, if ``WANDB_MODE=online`` comes without credentials.
    """

    def __init__(
        self,
        save_dir: str | None = None,
        project: str = "protometry",
        name: str | None = None,
        run_id: str | None = None,
        best: dict[str, float] | None = None,
    ) -> None:
        self._folder = Path(given_folder(save_dir))
        super().__init__(name=name, save_dir=self._folder, project=project, id=run_id or secrets.token_hex(4))
        del self._wandb_init["anonymous"]  # wandb warns about the argument, whatever its value
        self._hinted = False
        self._directions: dict[str, bool] = {}
        self.best = dict(best or {})

    @property
    def run_id(self) -> str:
        """Id of the W&B run, known before the run starts."""
        return str(self._id)

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """The W&B run, started when something is done with it: Lightning asks for it before settings are checked."""
        return _NotStarted(self._start) if self._experiment is None else self._experiment

    def _start(self) -> Any:
        if self._experiment is None:
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # its error reports use the network even offline
            mode = wandb_mode()
            quiet = {"settings": wandb.Settings(quiet=True)} if mode == "offline" else {}
            self._wandb_init.update(mode=mode, **quiet)
            self._folder.mkdir(parents=True, exist_ok=True)  # wandb goes elsewhere if it is missing
        return super().experiment

    @rank_zero_only
    def define_results(self, directions: Mapping[str, bool | None]) -> None:
        """Keep W&B from summing up keys whose best value :meth:`sum_up` knows.

        Args:
            directions: key as logged -> ``higher_is_better``; None keeps the last value.
        """
        for key, higher_is_better in directions.items():
            summary = None if higher_is_better is None else "none"
            self.experiment.define_metric(key, step_metric="trainer/global_step", summary=summary)
            if higher_is_better is not None:
                self._directions[key] = higher_is_better

    @rank_zero_only
    def sum_up(self, values: Mapping[str, float]) -> None:
        """Put the best values so far into the summary, as ``<key>.max`` or ``<key>.min``.

        Args:
            values: by key, of a model in a form that may be selected; others must not be passed.
        """
        for key, value in values.items():
            if key not in self._directions or not math.isfinite(value):
                continue
            name, better = ("max", max) if self._directions[key] else ("min", min)
            self.best[key] = better(value, self.best.get(key, value))
            self.experiment.summary[key] = {name: self.best[key]}

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Close the W&B run; say once how to upload an offline one."""
        super().finalize(status)
        if self._experiment is None:
            return
        self._experiment.finish(exit_code=0 if status == "success" else 1)
        self._experiment = None
        if self._wandb_init["mode"] in ("offline", "dryrun") and not self._hinted:
            self._hinted = True
            rank_zero_info(f"W&B was offline. Upload the run with: wandb sync {self._folder / 'wandb'}")


class _NotStarted:
    """Stands for a W&B run, and starts it at the first use."""

    def __init__(self, start: Callable[[], Any]) -> None:
        self._start = start

    def __getattr__(self, name: str) -> Any:
        return getattr(self._start(), name)


def wandb_mode() -> str:
    """The mode W&B is set to, or offline where that is online by default and there are no credentials."""
    mode = wandb.setup().settings.mode
    if mode in ("offline", "dryrun", "disabled") or wandb.login(prompt=False, verify=False):
        return mode
    if "WANDB_MODE" in os.environ:
        raise ValueError(
            f"Expected WANDB_MODE={mode} to come with credentials, but got none. Run `wandb login`, or set "
            "WANDB_MODE=offline."
        )
    return "offline"


def store_run(loggers: Iterable[Logger], checkpoint: dict[str, Any]) -> None:
    """Write the ids and the best values of the W&B runs into a checkpoint, by the class of their logger.

    Args:
        loggers: of the trainer.
        checkpoint: about to be saved.
    """
    runs = {type(logger).__name__: logger for logger in loggers if isinstance(logger, RunWandbLogger)}
    checkpoint[CHECKPOINT_KEY] = {name: logger.run_id for name, logger in runs.items()}
    checkpoint[BEST_KEY] = {name: dict(logger.best) for name, logger in runs.items()}


def stored_run(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """The ``run_id`` and ``best`` of the W&B run that a checkpoint belongs to, or None.

    Args:
        checkpoint: as loaded, or an empty mapping.
    """
    name = RunWandbLogger.__name__
    return {
        "run_id": checkpoint.get(CHECKPOINT_KEY, {}).get(name),
        "best": checkpoint.get(BEST_KEY, {}).get(name),
    }
