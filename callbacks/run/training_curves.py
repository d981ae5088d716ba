"""Curves of a training: a figure of its epochs in the run folder, and its steps for Weights & Biases."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning import Callback, LightningModule, Trainer
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from protometry.callbacks.run.pictures import drawing
from protometry.callbacks.run.wandb_logger import RunWandbLogger
from protometry.callbacks.trainer_parts import model_of, phase_of
from protometry.explanations.charts import BLUE, GREY, ORANGE, chart, styled, to_picture
from protometry.explanations.views import png
from protometry.run_folder.atomic import write_atomic
from protometry.run_folder.text_in_pictures import cut_text

WIDTH, HEIGHT, MARGIN = 760, 420, 80  # pixels of a panel, and of the margin around its axes
EVERY = 30  # seconds between two drawings
LETTERS = 14  # pixels, the height of letters, by which names of phases are cut
PANELS = {  # key as logged -> factor, name, colour, line
    "loss": {"train/loss": (1.0, "training", BLUE, "o-")},
    "accuracy in %": {
        "train/accuracy": (100.0, "training", BLUE, "o-"),
        "val/general/accuracy": (100.0, "validation", ORANGE, "s--"),
    },
}
COMPARED = (  # below the curves of both, for training accuracy that lies below validation accuracy
    "training: mean over the epoch, while the weights still change, with any augmentation\n"
    "validation: after the epoch, without augmentation"
)
Row = Mapping[str, Any]


class TrainingCurves(Callback):
    """Draws ``training.png`` into the run folder after the first epoch, then at most every 30 s, and at the end.

    The figures of the epochs so far are in every checkpoint, so that a resumed run draws all of them.
    """

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._drawn, self._at = True, -math.inf  # whether the picture holds all epochs, and when it was drawn

    def state_dict(self) -> dict[str, Any]:
        """The figures of every epoch so far."""
        return {"rows": self.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue the figures of the interrupted run."""
        self.rows = list(state_dict["rows"])

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Add an epoch."""
        epoch = trainer.current_epoch
        keys = [key for panel in PANELS.values() for key in panel if key in trainer.callback_metrics]
        row = {key: trainer.callback_metrics[key].item() for key in keys}
        self.rows = [*self.rows[:epoch], {"phase": phase_of(trainer, pl_module).name, **row}]
        self._drawn = False
        if time.monotonic() - self._at >= EVERY:
            self._draw(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draw the last epochs."""
        self._draw(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Draw the epochs that were trained."""
        self._draw(trainer)

    @drawing("curves of the training")
    def _draw(self, trainer: Trainer) -> None:
        if trainer.is_global_zero and not (trainer.fast_dev_run or self._drawn):  # type: ignore[attr-defined]
            self._drawn, self._at = True, time.monotonic()
            picture = png(to_picture(training_curves(self.rows)))
            write_atomic(Path(trainer.default_root_dir) / "training.png", picture)


class StepCurves(Callback):
    """Logs to W&B every ``log_every_n_steps`` steps and at the first step of every epoch; nothing if that is 0.

    The keys are ``train/loss_step`` (of rank zero's batch), ``lr/<parameter group>`` and ``phase/<name>``, the epoch of
    the phase under way, counted from 1: a line per phase while it lasts. The names of all phases, in the order that the
    key ``phase`` counts, are in the config as ``phases``. The other loggers have a row per epoch.
    """

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Name the phases."""
        self._loggers = [logger for logger in trainer.loggers if isinstance(logger, RunWandbLogger)]
        self._last = -1
        for logger in self._loggers:
            logger.log_hyperparams({"phases": [phase.name for phase in model_of(pl_module).phases().phases]})

    def on_train_batch_start(self, trainer: Trainer, *args: Any) -> None:
        """Remember the rates of the step; a scheduler may change them before it ends."""
        self._rates = {f"lr/{g['name']}": g["lr"] for o in trainer.optimizers for g in o.param_groups}

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log the step that has been made."""
        step, every = trainer.global_step - 1, trainer.log_every_n_steps  # type: ignore[attr-defined]
        due = every > 0 and (batch_idx == 0 or trainer.global_step % every == 0)
        if not due or step == self._last or not self._loggers:
            return
        self._last = step
        within = model_of(pl_module).phases().locate(trainer.current_epoch)[1]
        row = {"train/loss_step": outputs["loss"].item(), f"phase/{phase_of(trainer, pl_module).name}": within + 1}
        for logger in self._loggers:
            logger.log_metrics(row | self._rates, step)


@styled
def training_curves(rows: Sequence[Row]) -> Figure:
    """Panels of the loss and of the accuracies, side by side.

    Args:
        rows: one per epoch: ``phase``, the name of the phase, and the values by key as logged; a curve has a gap where
            its key is missing or its value is not finite.

    Raises:
        ValueError: without a row.
    """
    if not rows:
        raise ValueError("Expected argument `rows` to hold at least one epoch, but got none.")
    drawn = {title: curves for title, curves in PANELS.items() if any(key in row for row in rows for key in curves)}
    phases, epochs = [row["phase"] for row in rows], len(rows)
    starts = [epoch for epoch in range(epochs) if epoch == 0 or phases[epoch] != phases[epoch - 1]]
    figure, panels = chart(WIDTH, HEIGHT, columns=max(1, len(drawn)))
    for axes, (title, curves) in zip(panels, drawn.items(), strict=False):
        for key, (factor, name, colour, line) in curves.items():
            values = [factor * row.get(key, math.nan) for row in rows]
            if any(key in row for row in rows):
                finite = [value if math.isfinite(value) else math.nan for value in values]
                axes.plot(range(1, epochs + 1), finite, line, color=colour, label=name, markersize=4, clip_on=False)
        for start, end in zip(starts, [*starts[1:], epochs], strict=True):
            axes.axvline(start, color=GREY)
            name = cut_text(phases[start], LETTERS, int((end - start) / epochs * (WIDTH - MARGIN)))
            axes.text(start, 1.01, f" {name}", transform=axes.get_xaxis_transform(), color=GREY)
        both = len(curves) > 1 and all(any(key in row for row in rows) for key in curves)
        axes.set(xlim=(0, epochs), xlabel=f"epochs\n{COMPARED}" if both else "epochs", ylabel=title)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1.04), ncols=len(curves), borderpad=0)
    return figure
