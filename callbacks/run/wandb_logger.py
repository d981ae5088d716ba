"""The logger that writes to Weights & Biases from the run folder, and what a resumed run continues of it.

Whatever W&B does, the run continues, with one warning: without the package or with a broken one there is no logger,
without an answer of the server the run is offline, and where W&B fails later, the other loggers continue.

The id of the W&B run is drawn by :class:`RunWandbLogger`, stored in every checkpoint by :func:`store_run` together with
the best values so far, and handed to the logger of a resumed run by :func:`stored_run`.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.pytorch.loggers import Logger, WandbLogger
from lightning.pytorch.utilities import rank_zero_info, rank_zero_only, rank_zero_warn

from protometry.run_folder.command_line.user_path import shown
from protometry.run_folder.folder import given_folder

CHECKPOINT_KEY = "logger_run_ids"
BEST_KEY = "logger_best_values"
# seconds, unless the environment says otherwise; W&B alone would wait 90 s to begin and without end to finish, and
# would write its file every 15 s: a killed run would lose the rows in between, which a resumed one does not repeat
WAITS = {"init_timeout": 30.0, "finish_timeout": 120.0, "x_transaction_log_flush_interval": 0.05}


class MissingCredentialsError(ValueError):
    """The environment asks for an online run, for which there are no credentials."""


def _never_fails(method: Callable[..., None]) -> Callable[..., None]:
    """A method of the logger on rank zero that does nothing any more once W&B has failed."""

    @rank_zero_only
    @wraps(method)
    def guarded(self: RunWandbLogger, *args: Any, **kwargs: Any) -> None:
        if self.failed:
            return
        try:
            method(self, *args, **kwargs)
        except MissingCredentialsError:
            raise
        except Exception as error:  # whatever it is: W&B must not end a training
            self.failed = True
            rank_zero_warn(
                f"W&B failed ({_in_words(error)}): nothing more is logged there. The other loggers continue."
            )

    return guarded


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

    Attributes:
        failed: whether W&B failed, after which nothing more is sent to it.

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
        self._pictures = str(self._folder / "wandb")  # of tables wait there to be uploaded, otherwise at home
        self.failed = False
        self._mode: str | None = None
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
        return self._experiment or _NotStarted(self._start)

    def _start(self) -> Any:
        if self._experiment is not None:
            return self._experiment
        import wandb  # here, because other loggers work where it is broken

        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # its error reports use the network even offline
        os.environ.setdefault("WANDB_DATA_DIR", self._pictures)
        self._mode = self._mode or wandb_mode()
        waits = {name: wait for name, wait in WAITS.items() if f"WANDB_{name.upper()}" not in os.environ}
        self._folder.mkdir(parents=True, exist_ok=True)  # wandb goes elsewhere if it is missing
        while True:
            # offline, :meth:`finalize` says what matters
            quiet: dict[str, Any] = {"quiet": True, "silent": True} if self.is_offline else {}
            self._wandb_init.update(mode=self._mode, settings=waits | quiet)
            try:
                return super().experiment
            except Exception as error:
                if self.is_offline:
                    raise
                rank_zero_warn(f"W&B does not answer ({_in_words(error)}): the run is logged offline.")
                self._mode = "offline"
                wandb.teardown()  # its service still holds the id of the run

    @property
    def is_offline(self) -> bool:
        """Whether the run is, or will be, in files only."""
        return self._mode in ("offline", "dryrun")

    log_metrics = _never_fails(WandbLogger.log_metrics)
    log_hyperparams = _never_fails(WandbLogger.log_hyperparams)
    log_image = _never_fails(WandbLogger.log_image)
    log_table = _never_fails(WandbLogger.log_table)

    @_never_fails
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

    @_never_fails
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

    @_never_fails
    def finalize(self, status: str) -> None:
        """Close the W&B run; say once how to upload an offline one."""
        if self._experiment is None:
            return
        self._experiment.finish(exit_code=0 if status == "success" else 1)
        self._experiment = None
        if os.environ.get("WANDB_DATA_DIR") == self._pictures:
            del os.environ["WANDB_DATA_DIR"]
        if self.is_offline and not self._hinted:
            self._hinted = True
            rank_zero_info(f"W&B was offline. Upload the run with: wandb sync {shown(self._folder / 'wandb')}")


class _NotStarted:
    """Stands for a W&B run, and starts it at the first use."""

    def __init__(self, start: Callable[[], Any]) -> None:
        self._start = start

    def __getattr__(self, name: str) -> Any:
        return getattr(self._start(), name)


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def why_no_wandb() -> str | None:
    """None if the package can be imported, or the reason why not."""
    try:
        import wandb  # noqa: F401
    except Exception as error:  # a broken installation raises anything
        return _in_words(error)
    return None


def wandb_mode() -> str:
    """The mode W&B is set to, or offline where that is online by default and there are no credentials."""
    import wandb

    mode: str = wandb.setup().settings.mode
    if mode in ("offline", "dryrun", "disabled") or wandb.login(prompt=False, verify=False):
        return mode
    if "WANDB_MODE" in os.environ:
        raise MissingCredentialsError(
            f"Expected WANDB_MODE={mode} to come with credentials, but got none. Run `wandb login`, or set "
            "WANDB_MODE=offline."
        )
    return "offline"


def store_run(loggers: Iterable[Logger], checkpoint: dict[str, Any]) -> None:
    """Write the ids and the best values of the W&B runs into a checkpoint, by the class of their logger."""
    runs = {type(logger).__name__: logger for logger in loggers if isinstance(logger, RunWandbLogger)}
    checkpoint[CHECKPOINT_KEY] = {name: logger.run_id for name, logger in runs.items()}
    checkpoint[BEST_KEY] = {name: dict(logger.best) for name, logger in runs.items()}


def stored_run(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """The ``run_id`` and ``best`` of the W&B run that a checkpoint belongs to, or None."""
    name = RunWandbLogger.__name__
    return {
        "run_id": checkpoint.get(CHECKPOINT_KEY, {}).get(name),
        "best": checkpoint.get(BEST_KEY, {}).get(name),
    }
