"""Curves over the steps of a run, for Weights & Biases: the other loggers have a row per epoch."""

from __future__ import annotations

from typing import Any

from lightning import Callback, LightningModule, Trainer

from protometry.callbacks.run.wandb_logger import RunWandbLogger
from protometry.callbacks.trainer_parts import model_of


class StepCurves(Callback):
    """Logs to W&B every ``log_every_n_steps`` steps and at the first step of every epoch; nothing if that is 0.

    The keys are ``train/loss_step`` (of rank zero's batch), ``lr/<parameter group>`` and ``phase/<name>``, the epoch of
    the phase under way, counted from 1: a line per phase while it lasts. The names of all phases, in the order that the
    key ``phase`` counts, are in the config as ``phases``.
    """

    def __init__(self) -> None:
        self._rates: dict[str, float] = {}
        self._last = -1

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Name the phases."""
        for logger in _wandb_loggers(trainer):
            logger.log_hyperparams({"phases": [p.name for p in model_of(pl_module).phases().phases]})

    def on_train_batch_start(self, trainer: Trainer, *args: Any) -> None:
        """Remember the rates of the step; a scheduler may change them before it ends."""
        if _wandb_loggers(trainer):
            self._rates = {f"lr/{g['name']}": g["lr"] for o in trainer.optimizers for g in o.param_groups}

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log the step that has been made."""
        step = trainer.global_step - 1
        every = trainer.log_every_n_steps  # type: ignore[attr-defined]
        due = every > 0 and (batch_idx == 0 or trainer.global_step % every == 0)
        if not due or step == self._last or not (loggers := _wandb_loggers(trainer)):
            return
        self._last = step
        plan = model_of(pl_module).phases()
        index, epoch = plan.locate(trainer.current_epoch)
        row = {"train/loss_step": outputs["loss"].item(), f"phase/{plan.phases[index].name}": epoch + 1, **self._rates}
        for logger in loggers:
            logger.log_metrics(row, step)


def _wandb_loggers(trainer: Trainer) -> list[RunWandbLogger]:
    return [logger for logger in trainer.loggers if isinstance(logger, RunWandbLogger)]
