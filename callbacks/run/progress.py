"""Progress of a run with the phase of training: a bar in a terminal, one plain line per epoch everywhere else."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar
from rich.console import Console
from rich.markup import escape

from protometry.callbacks.trainer_parts import model_of
from protometry.metrics.suite import ENTRIES
from protometry.run_folder.command_line.messages import in_words
from protometry.run_folder.command_line.progress import progress

ACCURACY, TIES = "val/general/accuracy", "val/general/ties"


class PhaseProgressBar(RichProgressBar):
    """Lightning's rich bar with the phase, the loss, the validation accuracy and the time left in its description.

    ``joint 3/9 · epoch 4/12`` is the epoch of the phase and of the run; the time covers the whole plan. The loss is the
    last batch's, read at most twice a second, and at the end of an epoch its mean; until an epoch is validated, the
    accuracy of an earlier one is shown as ``last val``. Where the output is not a terminal, each epoch prints one line
    instead: phase, epoch, training loss, its own validation metrics (fractions in percent), seconds, time left.
    Evaluations show how many images they process per second, over all processes; where the output is not a terminal,
    they print how far they are every half minute.
    """

    seconds_between_losses = 0.5

    def configure_columns(self, trainer: Trainer) -> list[Any]:
        """The description, the bar and the number of batches, which fit into 80 columns."""
        return super().configure_columns(trainer)[:3]

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Look where the output goes."""
        super().setup(trainer, pl_module, stage)
        console = Console(**self._console_kwargs)
        if not (console.is_terminal or console.is_jupyter):
            self.disable()

    # -- training ----------------------------------------------------------------------------------------------------
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clocks, also for a run that continues in the middle of an epoch."""
        super().on_train_start(trainer, pl_module)
        self._clock, self._started, self._read = TimeLeft(), time.monotonic(), 0.0
        self._loss = self._accuracy = ""

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock of the epoch."""
        self._time_left(0.0)
        super().on_train_epoch_start(trainer, pl_module)
        self._started = time.monotonic()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Read the loss now and then: on an accelerator, reading it waits for the batch."""
        if self.is_enabled and time.monotonic() - self._read >= self.seconds_between_losses:
            self._read = time.monotonic()
            self._describe((batch_idx + 1) / max(self.total_train_batches, 1), outputs["loss"].item())
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the line, or refresh the bar."""
        super().on_train_epoch_end(trainer, pl_module)
        logged = trainer.callback_metrics
        values = {key: logged[key].item() for key in sorted(logged) if key == "train/loss" or key.startswith("val/")}
        if self.is_enabled:
            self._describe(1.0, values.get("train/loss"))
        elif trainer.is_global_zero:
            figures = [f"{key} {printed(key, value)}" for key, value in values.items() if key != TIES or value]
            figures += [f"{time.monotonic() - self._started:.1f} s", self._time_left(1.0)]
            described = phase_description(pl_module, trainer.current_epoch, trainer.max_epochs)
            print(" · ".join(filter(None, [f"phase {described}", *figures])), flush=True)

    def _update_metrics(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Nothing: Lightning would read every logged value after every batch."""

    def _describe(self, share: float, loss: float | None) -> None:
        """Put new figures into the bar, after a share of an epoch."""
        self._loss = self._loss if loss is None else f"loss {loss:.3g}"
        described = self._get_train_description(self.trainer.current_epoch, share)
        if self.progress is not None and self.train_progress_bar_id is not None:
            self.progress.update(self.train_progress_bar_id, description=described)
            self.refresh()

    def _get_train_description(self, current_epoch: int, share: float = 0.0) -> str:
        if (new := self.trainer.callback_metrics.get(ACCURACY)) is not None:
            self._accuracy = f"{100 * new.item():.1f} %"
        accuracy = self._accuracy and f"{'last val' if new is None else 'val acc'} {self._accuracy}"
        place = phase_description(self.trainer.lightning_module, current_epoch, self.trainer.max_epochs)
        return escape("  ".join(filter(None, [place, self._loss, accuracy, self._time_left(share)])))

    def _time_left(self, share: float) -> str:
        phase, _ = model_of(self.trainer.lightning_module).phases().locate(self.trainer.current_epoch)
        position = self.trainer.current_epoch + share
        return in_words(self._clock.seconds(phase, position, self.trainer.max_epochs or 0, time.monotonic()))

    # -- evaluation --------------------------------------------------------------------------------------------------
    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock, and lines where there is no bar."""
        super().on_test_start(trainer, pl_module)
        self._started, self._images, self._lines = time.monotonic(), 0, ExitStack()
        if self.progress is None:
            self._advance = self._lines.enter_context(progress("Evaluating", sum(map(int, trainer.num_test_batches))))

    def on_test_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        """Say how fast images are evaluated."""
        super().on_test_batch_end(trainer, pl_module, *args)
        self._images += len(args[1]["image"]) * trainer.world_size
        if self.progress is not None and self.test_progress_bar_id is not None:
            rate = f"{self._images / max(time.monotonic() - self._started, 1e-9):.1f} images/s"
            figures = filter(None, ["Testing", rate, in_words(self.test_progress_bar.time_remaining)])
            self.progress.update(self.test_progress_bar_id, description="  ".join(figures))
        elif self.progress is None:
            self._advance()

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the lines."""
        super().on_test_end(trainer, pl_module)
        self._lines.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """End the lines."""
        super().on_exception(trainer, pl_module, exception)
        if hasattr(self, "_lines"):
            self._lines.close()


class TimeLeft:
    """The time left of a plan, by the pace of the phase under way.

    A phase is measured from half an epoch on; until then, it is assumed to run at the pace of the phase before.

    Example:
        >>> clock = TimeLeft()
        >>> clock.seconds(0, 0.0, 10, now=100.0)  # unknown
        0.0
        >>> clock.seconds(0, 0.5, 10, now=110.0)  # 20 s an epoch, 9.5 epochs left
        190.0
        >>> clock.seconds(1, 1.0, 10, now=120.0), clock.seconds(1, 2.0, 10, now=125.0)
        (180.0, 40.0)
    """

    def __init__(self) -> None:
        self._phase, self._began, self._first, self._pace = -1, 0.0, 0.0, 0.0

    def seconds(self, phase: int, position: float, total: int, now: float) -> float:
        """Seconds left, 0 before there is a pace.

        Args:
            phase: index of the phase under way.
            position: epochs done, of all phases; a fraction within an epoch.
            total: epochs of the run.
            now: seconds of a clock.
        """
        if phase != self._phase:
            self._phase, self._began, self._first = phase, now, position
        done, pace = position - self._first, self._pace
        if done >= 0.5:
            self._pace = pace = (now - self._began) / done
        elif done > 0 and not pace:
            pace = (now - self._began) / done  # a first guess, not kept
        return pace * max(0.0, total - position)


def printed(key: str, value: float) -> str:
    """A logged value as it is printed: fractions in percent.

    Example:
        >>> printed("val/general/accuracy", 0.455), printed("train/loss", 2.0627)
        ('45.5 %', '2.063')
    """
    entry = ENTRIES.get(key.removeprefix("val/"))
    return f"{100 * value:.4g} %" if entry is not None and entry.unit == "fraction" else f"{value:.4g}"


def phase_description(module: LightningModule, epoch: int, epochs: int | None) -> str:
    """The place of a run in its plan, counted from 1.

    Args:
        module: a model with phases.
        epoch: 0-based epoch of the run.
        epochs: of the run.

    Example:
        >>> from types import SimpleNamespace
        >>> from protometry.lightning_modules.phases import Phase, PhasePlan
        >>> plan = PhasePlan((Phase("warm", 1, {"head": 0.1}, {}), Phase("joint", 9, {"head": 0.1}, {})))
        >>> phase_description(SimpleNamespace(phases=lambda: plan), 3, 10)
        'joint 3/9 · epoch 4/10'
    """
    plan = model_of(module).phases()
    index, within = plan.locate(epoch)
    return f"{plan.phases[index].name} {within + 1}/{plan.phases[index].epochs} · epoch {epoch + 1}/{epochs}"
