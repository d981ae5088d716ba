"""Progress of a run with the phase of training: a bar in a terminal, one plain line per epoch everywhere else."""

from __future__ import annotations

import time
from typing import Any, cast

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar
from rich.console import Console
from rich.markup import escape

from lightning_modules.contract import InterpretableModel


class PhaseProgressBar(RichProgressBar):
    """Lightning's rich bar, described as ``phase joint 3/9 · epoch 4/12``: epoch of the phase, epoch of the run.

    Where the output is no terminal, each epoch prints one line instead: phase, epoch, training loss, validation
    metrics, seconds. Evaluations say how many images they do per second, over all processes.
    """

    plain = False
    seconds_between_lines = 10.0

    @property
    def is_enabled(self) -> bool:
        """Whether bars are drawn."""
        return super().is_enabled and not self.plain

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Look where the output goes."""
        super().setup(trainer, pl_module, stage)
        console = Console(**self._console_kwargs)
        self.plain = not (console.is_terminal or console.is_jupyter)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock for a run that goes on in the middle of an epoch."""
        super().on_train_start(trainer, pl_module)
        self._started = time.monotonic()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock, or a new bar."""
        super().on_train_epoch_start(trainer, pl_module)
        self._started = time.monotonic()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the line, or refresh the bar."""
        super().on_train_epoch_end(trainer, pl_module)
        if not (self.plain and trainer.is_global_zero):
            return
        metrics = trainer.callback_metrics
        keys = [key for key in sorted(metrics) if key == "train/loss" or key.startswith("val/")]
        figures = [f"{key} {metrics[key].item():.4g}" for key in keys]
        seconds = f"{time.monotonic() - self._started:.1f} s"
        line = " · ".join([phase_description(pl_module, trainer.current_epoch, trainer.max_epochs), *figures, seconds])
        print(line, flush=True)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock."""
        super().on_test_start(trainer, pl_module)
        self._started = self._last_line = time.monotonic()
        self._images = 0

    def on_test_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        """Say how fast images are evaluated."""
        super().on_test_batch_end(trainer, pl_module, *args)
        self._images += len(args[1]["image"]) * trainer.world_size
        now = time.monotonic()
        rate = f"{self._images / max(now - self._started, 1e-9):.1f} images/s"
        if self.progress is not None and self.test_progress_bar_id is not None:
            self.progress.update(self.test_progress_bar_id, description=f"{self.test_description} · {rate}")
        if self.plain and trainer.is_global_zero and now - self._last_line >= self.seconds_between_lines:
            self._last_line = now
            print(f"evaluated about {self._images} images · {rate}", flush=True)

    def _get_train_description(self, current_epoch: int) -> str:
        return escape(phase_description(self.trainer.lightning_module, current_epoch, self.trainer.max_epochs))


def phase_description(module: LightningModule, epoch: int, max_epochs: int | None) -> str:
    """The place of a run in its plan, counted from 1.

    Args:
        module: a model with phases.
        epoch: 0-based epoch of the run.
        max_epochs: epochs of the run; the length of the plan if None or -1.

    Example:
        >>> from types import SimpleNamespace
        >>> from lightning_modules.phases import Phase, PhasePlan
        >>> plan = PhasePlan((Phase("warm", 1, {"head": 0.1}, {}), Phase("joint", 9, {"head": 0.1}, {})))
        >>> phase_description(SimpleNamespace(phases=lambda: plan), 3, -1)
        'phase joint 3/9 · epoch 4/10'
    """
    plan = cast(InterpretableModel, module).phases()
    index, within = plan.locate(epoch)
    phase = plan.phases[index]
    total = plan.total_epochs if max_epochs in (None, -1) else max_epochs
    return f"phase {phase.name} {within + 1}/{phase.epochs} · epoch {epoch + 1}/{total}"
