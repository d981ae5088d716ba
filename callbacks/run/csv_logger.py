"""The logger that writes ``metrics.csv`` into the run folder and continues it after a resume."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor

from protometry.run_folder.atomic import append_whole, write_atomic
from protometry.run_folder.csv_text import whole_rows
from protometry.run_folder.folder import given_folder
from protometry.run_folder.layout import HISTORY


class MetricsCsv:
    """A table of metrics on disk, one row per call, readable after a kill at any moment.

    Rows are appended as whole lines or not at all; when a new key widens the header, and when a resumed run drops rows,
    a new file takes the old one's name. Columns are ``step``, ``epoch`` and then the keys in alphabetical order.

    Args:
        path: the file; created with the first row.
        resume_step: rows of an existing file at this step and later are dropped.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "metrics.csv"
        >>> table = MetricsCsv(path, resume_step=0)
        >>> for step in (0, 1):
        ...     table.log_metrics({"loss": 0.5}, step)
        ...     table.save()
        >>> path.read_text().split()
        ['step,loss', '0,0.5', '1,0.5']
        >>> _ = MetricsCsv(path, resume_step=1)
        >>> path.read_text().split()
        ['step,loss', '0,0.5']
    """

    def __init__(self, path: Path, resume_step: int) -> None:
        self.path = path
        self.metrics: list[dict[str, Any]] = []
        self.columns: list[str] = []
        self._kept: list[dict[str, str]] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            rows = whole_rows(path)
            self._kept = [row for row in rows if int(row["step"]) < resume_step]
            self._rewrite(self._kept, set().union(*rows))

    def log_metrics(self, metrics: Mapping[str, Any], step: int) -> None:
        """Take in one row, to be written by the next :meth:`save`; one that a resumed run repeats is there already."""
        values = {key: value.item() if isinstance(value, Tensor) else value for key, value in metrics.items()}
        row = values | {"step": step}
        written = {key: "" if value is None else str(value) for key, value in row.items()}
        if not any(written.items() <= kept.items() for kept in self._kept):
            self.metrics.append(row)

    def save(self) -> None:
        """Write the rows taken in since the last call."""
        if not self.metrics:
            return
        keys = set().union(*self.metrics)
        if keys <= set(self.columns):
            append_whole(self.path, self._lines(self.metrics))
        else:
            self._rewrite([*whole_rows(self.path), *self.metrics], keys | set(self.columns))
        self.metrics = []  # a failure keeps them for the next call

    def _rewrite(self, rows: Sequence[Mapping[str, Any]], keys: set[str]) -> None:
        self.columns = sorted(keys, key=lambda key: (key != "step", key != "epoch", key))
        write_atomic(self.path, self._lines([{key: key for key in self.columns}, *rows]))

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
        folder = given_folder(save_dir)
        super().__init__(folder, name="", version="", flush_logs_every_n_steps=1)
        self._path = Path(folder) / HISTORY
        self._resume_step = resume_step
        self._table: MetricsCsv | None = None
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
    def experiment(self) -> MetricsCsv:
        """The table, opened at the first use."""
        if self._table is None:
            self._table = MetricsCsv(self._path, self._resume_step or 0)
        return self._table

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: the run folder holds ``config.yaml``."""

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Nothing: every row is on disk already."""
