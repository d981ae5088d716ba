"""Loggers that write into the run folder and survive a resume: ``metrics.csv``, Weights & Biases, and images.

A resumed run continues its predecessor's table and W&B run; nothing that is already in a folder is lost.
"""

from __future__ import annotations

import csv
import functools
import io
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import wandb
from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger, WandbLogger
from lightning.pytorch.utilities import rank_zero_info, rank_zero_only
from PIL import Image
from torch import Tensor


class MetricsFile:
    """A table of metrics on disk, one row per call, readable after a kill at any moment.

    Rows are appended as whole lines; when a new key widens the header, and when a resumed run drops rows, a new file
    takes the old one's name. Columns are ``step``, ``epoch`` and then the keys in alphabetical order.

    Args:
        path: the file; created with the first row.
        resume_step: rows of an existing file at this step and later are dropped.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "metrics.csv"
        >>> table = MetricsFile(path, resume_step=0)
        >>> for step in (0, 1):
        ...     table.log_metrics({"loss": 0.5}, step)
        ...     table.save()
        >>> path.read_text().split()
        ['step,loss', '0,0.5', '1,0.5']
        >>> _ = MetricsFile(path, resume_step=1)
        >>> path.read_text().split()
        ['step,loss', '0,0.5']
    """

    def __init__(self, path: Path, resume_step: int) -> None:
        self.path = path
        self.metrics: list[dict[str, Any]] = []
        self.columns: list[str] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            rows = self._read()
            self._rewrite([row for row in rows if int(row["step"]) < resume_step], set().union(*rows))

    def log_metrics(self, metrics: Mapping[str, Any], step: int) -> None:
        """Take in one row, to be written by the next :meth:`save`."""
        values = {key: value.item() if isinstance(value, Tensor) else value for key, value in metrics.items()}
        self.metrics.append(values | {"step": step})

    def save(self) -> None:
        """Write the rows taken in since the last call."""
        if not self.metrics:
            return
        rows, self.metrics = self.metrics, []
        keys = set().union(*rows)
        if keys <= set(self.columns):
            with self.path.open("ab", buffering=0) as file:
                file.write(self._lines(rows))
        else:
            self._rewrite([*self._read(), *rows], keys | set(self.columns))

    def _read(self) -> list[dict[str, str]]:
        """All complete rows; a last line without its end was cut off by a crash."""
        if not self.path.exists():
            return []
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        return list(csv.DictReader(line for line in lines if line.endswith("\n")))

    def _rewrite(self, rows: Sequence[Mapping[str, Any]], keys: set[str]) -> None:
        self.columns = sorted(keys, key=lambda key: (key != "step", key != "epoch", key))
        temporary = self.path.with_name(f"{self.path.name}.part")
        temporary.write_bytes(self._lines([{key: key for key in self.columns}, *rows]))
        temporary.replace(self.path)

    def _lines(self, rows: Sequence[Mapping[str, Any]]) -> bytes:
        text = io.StringIO()
        csv.DictWriter(text, self.columns, lineterminator="\n").writerows(rows)
        return text.getvalue().encode()


class RunCSVLogger(CSVLogger):
    """Writes ``metrics.csv`` directly in the run folder and continues it after a resume.

    Args:
        save_dir: the run folder; the command line fills it in.
        resume_step: the checkpoint's ``global_step`` if the run is resumed: earlier rows stay, the rows that the
            interrupted run wrote after it are dropped (they are repeated). None for a fresh run.

    Raises:
        ValueError: without a folder, or if a fresh run meets an existing ``metrics.csv``.
    """

    def __init__(self, save_dir: str | None = None, resume_step: int | None = None) -> None:
        folder = _run_folder(save_dir)
        super().__init__(folder, name="", version="", flush_logs_every_n_steps=1)
        self._path = Path(folder) / "metrics.csv"
        self._resume_step = resume_step
        self._table: MetricsFile | None = None
        if resume_step is None and self._path.exists():
            raise ValueError(
                f"Expected argument `save_dir` to be a folder without metrics.csv, but got {folder}, which holds an "
                "earlier run. Resume it with `--ckpt_path last`, or name another run with `--experiment`."
            )

    @property
    def log_dir(self) -> str:
        """The run folder."""
        return self.save_dir

    @property
    @rank_zero_experiment
    def experiment(self) -> MetricsFile:
        """The table, opened at the first use."""
        if self._table is None:
            self._table = MetricsFile(self._path, self._resume_step or 0)
        return self._table

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: the run folder holds ``config.yaml``."""

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Nothing: every row is on disk already."""


class RunWandbLogger(WandbLogger):
    """Logs to Weights & Biases in the run folder; offline unless credentials are configured, and never asks.

    ``WANDB_MODE`` (or ``wandb offline``) wins over what is found. The step axis of every key is
    ``trainer/global_step``. The W&B run is closed at the end of every ``fit`` or ``test``; later rows continue it.

    Args:
        save_dir: the run folder, filled in by the command line; local files land in ``<save_dir>/wandb``.
        project: W&B project.
        name: name to show, chosen by W&B if None.
        run_id: id of the run; the same id continues the same run. None draws one.

    Raises:
        ValueError: without a folder; when the run starts, if ``WANDB_MODE=online`` comes without credentials.
    """

    def __init__(
        self,
        save_dir: str | None = None,
        project: str = "protometry",
        name: str | None = None,
        run_id: str | None = None,
    ) -> None:
        self._folder = Path(_run_folder(save_dir))
        super().__init__(name=name, save_dir=self._folder, project=project, id=run_id or secrets.token_hex(4))
        del self._wandb_init["anonymous"]  # wandb warns about the argument, whatever its value
        self._hinted = False

    @property
    def run_id(self) -> str:
        """Id of the W&B run, known before the run starts."""
        return str(self._id)

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """The W&B run, started at the first use."""
        if self._experiment is None:
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # its error reports use the network even offline
            mode = _wandb_mode()
            quiet = {"settings": wandb.Settings(quiet=True)} if mode == "offline" else {}
            self._wandb_init.update(mode=mode, **quiet)
            self._folder.mkdir(parents=True, exist_ok=True)  # wandb goes elsewhere if it is missing
        return super().experiment

    @rank_zero_only
    def define_results(self, directions: Mapping[str, bool | None]) -> None:
        """Tell W&B which value of a result key is the best one, for the summary.

        Args:
            directions: key as logged -> ``higher_is_better``; None keeps the last value.
        """
        for key, higher_is_better in directions.items():
            summary = None if higher_is_better is None else "max" if higher_is_better else "min"
            self.experiment.define_metric(key, step_metric="trainer/global_step", summary=summary)

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


def _wandb_mode() -> str:
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
            _say_skipped(type(logger).__name__)


@functools.cache
def _say_skipped(logger: str) -> None:
    rank_zero_info(f"{logger} takes no images; they are in the run folder.")


def _run_folder(save_dir: str | None) -> str:
    """The folder, which the command line fills in; there is no default that could hold another run."""
    if not save_dir:
        raise ValueError(f"Expected argument `save_dir` to be the run folder, but got {save_dir!r}.")
    return save_dir
