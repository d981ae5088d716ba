"""Atomic checkpoints of a run: one before the first batch, then one at every epoch end, written atomically.

``last.ckpt`` is the place to resume from; ``best.ckpt`` is the best validated epoch among the phases the plan marks
``selectable``, that is after projection. Files hold tensors and plain types only and are read with
``weights_only=True``.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any, Literal, cast

import torch
from lightning import LightningModule, Trainer
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch.callbacks import Checkpoint, Timer
from lightning.pytorch.utilities import rank_zero_warn

from protometry.callbacks.evaluation.interpretability import Interpretability
from protometry.callbacks.phases.phase_schedule import PhaseSchedule
from protometry.callbacks.run.training_record import training_record, unfinished_schedule
from protometry.callbacks.run.wandb_logger import store_run
from protometry.callbacks.trainer_parts import callbacks_of, phase_of
from protometry.metrics.suite import ENTRIES
from protometry.run_folder.checkpoint_file import read_checkpoint
from protometry.run_folder.command_line.stop_signals import SIGNALS
from protometry.run_folder.layout import BEST, LAST


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes next to the target and renames, so that a crash or a full disk leaves the earlier checkpoint whole."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Write ``checkpoint`` to ``path``.

        Raises:
            OSError: if it cannot be written; a checkpoint that stood there before is untouched.
        """
        target = Path(path)
        temporary = target.with_name(target.name + ".part")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException as error:
            temporary.unlink(missing_ok=True)
            if not isinstance(error, OSError | RuntimeError):
                raise
            kept = f"the earlier {target.name} is untouched" if target.exists() else f"there is no {target.name} yet"
            cause = error if isinstance(error, OSError) else error.__context__ or error  # torch says where, not why
            failure = OSError(f"Could not write the checkpoint {target} ({cause}); {kept}.")
            failure.errno = getattr(cause, "errno", None)
            raise failure from error

    def load_checkpoint(self, path: str | Path, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Read with :func:`read_checkpoint`, whatever the caller asks."""
        return read_checkpoint(path)


class RunCheckpoint(Checkpoint):
    """Keeps ``last.ckpt`` and ``best.ckpt`` in ``<run folder>/checkpoints``.

    Args:
        monitor: logged key that selects the best checkpoint; must be a validation key.
        mode: whether a larger or a smaller value is better.

    Raises:
        ValueError: if ``monitor`` is not a validation key; at set-up, if nothing computes it or ``mode`` would keep its
            worst value.
    """

    def __init__(self, monitor: str = "val/general/accuracy", mode: Literal["max", "min"] = "max") -> None:
        super().__init__()
        if not str(monitor).startswith("val/"):  # a config may say null
            raise ValueError(
                f"Expected argument `monitor` to be a validation key (val/...), but got {monitor!r}: selecting on "
                "training or test data makes the reported score worthless."
            )
        self.monitor = monitor
        self.mode = mode
        self.best_score: float | None = None
        self._validated = False
        self._earlier: dict[str, Any] | None = None  # the training record of the checkpoint the run continues from

    def best_or_last(self, trainer: Trainer) -> Path:
        """The best checkpoint, or the last one of a run that never validated a selectable phase."""
        return Path(trainer.default_root_dir) / (LAST if self.best_score is None else BEST)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Look for ``monitor`` in the validation suite, and at its direction, before hours of training."""
        if stage != "fit":
            return
        known = [f"val/{key}" for engine in callbacks_of(trainer, Interpretability) for key in engine.every_epoch]
        if self.monitor not in known:
            raise ValueError(
                f"Expected argument `monitor` to be one of {known}, but got {self.monitor!r}. Add it to "
                "`evaluation.validation_suite` with `evaluation.every_n_epochs: 1`, or select on another."
            )
        higher_is_better = ENTRIES[self.monitor.removeprefix("val/")].higher_is_better
        if higher_is_better not in (None, self.mode == "max"):
            better = "'max', because larger" if higher_is_better else "'min', because smaller"
            raise ValueError(
                f"Expected argument `mode` to be {better} values of {self.monitor} are better, but got {self.mode!r}."
            )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save the state before the first batch of a fresh run."""
        if not (Path(trainer.default_root_dir) / BEST).exists():
            self.best_score = None  # it belongs to another run, which this one was started from
        if trainer.global_step == 0:
            self.save(trainer, LAST)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Remember that this epoch has been validated; from here on, no signal stops the run before it is saved."""
        self._validated = not trainer.sanity_checking
        if self._validated and trainer.state.fn == "fit":
            SIGNALS.hold()

    def on_train_batch_start(self, trainer: Trainer, *args: Any) -> None:
        """Let signals stop the run again, as after a validation in the middle of an epoch."""
        SIGNALS.release()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save the best one first, so that the last one remembers it, and before both the rows they are about.

        In between, the phase ends if it is over.
        """
        _log_epoch(trainer)
        if self._validated and self._improved(trainer, phase_of(trainer, pl_module).selectable):
            self.save(trainer, BEST)
        self._validated = False
        for schedule in callbacks_of(trainer, PhaseSchedule):
            schedule.end_early(trainer, pl_module)
        self.save(trainer, LAST)
        SIGNALS.release()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report where a schedule was cut short, if there is a checkpoint to continue from."""
        if not (Path(trainer.default_root_dir) / LAST).exists():
            return
        if note := unfinished_schedule(training_record(trainer, pl_module, self._earlier)):
            more = f" and a larger `trainer.{limit}`" if (limit := _reached_limit(trainer)) else ""
            go_on = f"Continue with `--ckpt_path last`{more}"
            rank_zero_warn(f"{note}. {go_on}; until then, results are marked as incomplete.")

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """The same after an interruption by hand."""
        if isinstance(exception, KeyboardInterrupt) and trainer.state.fn == "fit":
            self.on_train_end(trainer, pl_module)

    def save(self, trainer: Trainer, name: str) -> None:
        """Write a checkpoint; nothing in a trial run."""
        if not trainer.fast_dev_run:  # type: ignore[attr-defined]
            trainer.save_checkpoint(Path(trainer.default_root_dir) / name, weights_only=False)

    def _improved(self, trainer: Trainer, selectable: bool) -> bool:
        if self.monitor not in trainer.callback_metrics:
            known = sorted(key for key in trainer.callback_metrics if key.startswith("val/"))
            raise ValueError(
                f"Expected argument `monitor` to be one of {known}, but got {self.monitor!r}, which is not applicable "
                "to this model and data."
            )
        score = float(trainer.callback_metrics[self.monitor])
        best = self.best_score
        improved = best is None or (score > best if self.mode == "max" else score < best)
        better = selectable and math.isfinite(score) and improved
        if better:
            self.best_score = score
        return better

    def state_dict(self) -> dict[str, Any]:
        """The best score so far."""
        return {"best_score": self.best_score}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from the best score of the interrupted run."""
        self.best_score = state_dict["best_score"]

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Store the id of the W&B run, so that a resumed run continues it, and what decided the weights."""
        store_run(trainer.loggers, checkpoint)
        checkpoint["training"] = training_record(trainer, pl_module, self._earlier)

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Continue the record of the interrupted run."""
        self._earlier = checkpoint.get("training", {})


def _reached_limit(trainer: Trainer) -> str | None:
    """The limit that ended a training, and would end it again."""
    loop = trainer.fit_loop
    left = [timer.time_remaining() for timer in callbacks_of(trainer, Timer)]
    reached = {
        "max_epochs": cast(Any, loop.epoch_progress.current).processed >= cast(int, loop.max_epochs),
        "max_steps": 0 <= loop.max_steps <= trainer.global_step,
        "max_time": any(seconds is not None and seconds <= 0 for seconds in left),
    }
    return next((limit for limit, so in reached.items() if so), None)


def _log_epoch(trainer: Trainer) -> None:
    """Send the metrics of an epoch to the loggers.

    Lightning does so after the callbacks (and then finds nothing left): a run killed in between would resume after an
    epoch that has no row, while a row that has no checkpoint yet is dropped and repeated.
    """
    connector, loop = trainer._logger_connector, trainer.fit_loop.epoch_loop
    connector.on_epoch_end()
    loop._batches_that_stepped -= 1  # the last step of the epoch, as Lightning counts for such rows
    connector.update_train_epoch_metrics()
    loop._batches_that_stepped += 1
