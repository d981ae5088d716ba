"""Progress of a run with the phase of training: a bar in a terminal, one plain line per epoch everywhere else."""

from __future__ import annotations

import time
from itertools import accumulate
from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Task, TextColumn

from protometry.callbacks.trainer_parts import model_of
from protometry.metrics.suite import ENTRIES
from protometry.run_folder.command_line.messages import counted, in_words

ACCURACY, TIES = "val/general/accuracy", "val/general/ties"
NARROWEST, WIDEST = 5, 40  # columns of a bar
FIGURES = 50  # columns of the longest figures and of the number of batches


class PhaseProgressBar(RichProgressBar):
    """Lightning's rich bar in one line of 80 columns: phase, epoch, batch, loss, validation accuracy and time left.

    ``joint 3/9 · epoch 4/12`` is the epoch of the phase and of the run; the time covers the whole plan. The loss is the
    last batch's, read at most twice a second, and at the end of an epoch its mean; until an epoch is validated, the
    accuracy of an earlier one is shown as ``last val``. Where the output is not a terminal, each epoch prints one line
    instead: phase, epoch, training loss, its own validation metrics (fractions in percent), seconds, time left.
    Evaluations say how many images they do per second, over all processes.
    """

    plain = False
    seconds_between_lines = 10.0
    seconds_between_losses = 0.5

    @property
    def is_enabled(self) -> bool:
        """Whether bars are drawn."""
        return super().is_enabled and not self.plain

    def configure_columns(self, trainer: Trainer) -> list[Any]:
        """What stands in the line of a bar."""
        plan = model_of(trainer.lightning_module).phases()
        ends = accumulate(phase.length for phase in plan.phases)
        longest = max(len(self._get_train_description(end - 1)) for end in ends)
        width = max(NARROWEST, min(WIDEST, Console(**self._console_kwargs).width - longest - FIGURES))
        return [
            TextColumn("{task.description}"),
            BarColumn(width, complete_style=self.theme.progress_bar, finished_style=self.theme.progress_bar_finished),
            MofNCompleteColumn(),
            _Figures(),
        ]

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Look where the output goes."""
        super().setup(trainer, pl_module, stage)
        console = Console(**self._console_kwargs)
        self.plain = not (console.is_terminal or console.is_jupyter)

    # -- training ----------------------------------------------------------------------------------------------------
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clocks, also for a run that continues in the middle of an epoch."""
        super().on_train_start(trainer, pl_module)
        self._started = time.monotonic()
        self._read = 0.0
        self._loss: float | None = None
        self._accuracy: float | None = None
        self._clock = TimeLeft()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock of the epoch, or a new bar, whose figures are there when it is drawn first."""
        self._put_figures(trainer, self._time_left(trainer, 0.0))
        super().on_train_epoch_start(trainer, pl_module)
        self._started = time.monotonic()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Read the loss now and then: on an accelerator, reading it waits for the batch."""
        if self.is_enabled and time.monotonic() - self._read >= self.seconds_between_losses:
            self._read, self._loss = time.monotonic(), outputs["loss"].item()
            self._show(trainer, self._time_left(trainer, (batch_idx + 1) / max(self.total_train_batches, 1)))
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the line, or refresh the bar."""
        super().on_train_epoch_end(trainer, pl_module)
        metrics, left = trainer.callback_metrics, self._time_left(trainer, 1.0)
        if self.is_enabled and "train/loss" in metrics:
            self._loss = metrics["train/loss"].item()
            self._show(trainer, left)
        if not (self.plain and trainer.is_global_zero):
            return
        values = {key: metrics[key].item() for key in sorted(metrics) if key == "train/loss" or key.startswith("val/")}
        figures = [f"{key} {printed(key, value)}" for key, value in values.items() if key != TIES or value]
        figures += [f"{time.monotonic() - self._started:.1f} s", *([left] if left else [])]
        described = phase_description(pl_module, trainer.current_epoch, trainer.max_epochs)
        print(" · ".join([described, *figures]), flush=True)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the new accuracy."""
        super().on_validation_end(trainer, pl_module)
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._show(trainer, self._time_left(trainer, 1.0))

    def _time_left(self, trainer: Trainer, share: float) -> str:
        plan = model_of(trainer.lightning_module).phases()
        phase, _ = plan.locate(trainer.current_epoch)
        total = plan.total_epochs if trainer.max_epochs in (None, -1) else trainer.max_epochs
        return in_words(self._clock.seconds(phase, trainer.current_epoch + share, total, time.monotonic()))

    def _show(self, trainer: Trainer, left: str) -> None:
        """Draw the line of the bar with its figures."""
        self._put_figures(trainer, left)
        self.refresh()

    def _put_figures(self, trainer: Trainer, left: str) -> None:
        if self.progress is None or self.train_progress_bar_id is None or not self.is_enabled:
            return
        validated = ACCURACY in trainer.callback_metrics
        self._accuracy = trainer.callback_metrics[ACCURACY].item() if validated else self._accuracy
        figures = [
            "" if self._loss is None else f"loss {self._loss:.3g}",
            "" if self._accuracy is None else f"{'val acc' if validated else 'last val'} {100 * self._accuracy:.1f} %",
            left,
        ]
        self.progress.update(self.train_progress_bar_id, figures=" · ".join(filter(None, figures)))

    def _update_metrics(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Nothing: Lightning would read every logged value after every batch."""

    # -- evaluation --------------------------------------------------------------------------------------------------
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
            left = in_words(self.test_progress_bar.time_remaining)
            self.progress.update(self.test_progress_bar_id, figures=" · ".join(filter(None, [rate, left])))
        if self.plain and trainer.is_global_zero and now - self._last_line >= self.seconds_between_lines:
            self._last_line = now
            print(f"evaluated about {counted(self._images, 'image')} · {rate}", flush=True)

    def _get_train_description(self, current_epoch: int) -> str:
        described = phase_description(self.trainer.lightning_module, current_epoch, self.trainer.max_epochs)
        return escape(described.removeprefix("phase "))


class _Figures(TextColumn):
    """The figures a task shows; empty at first."""

    def __init__(self) -> None:
        super().__init__("")

    def render(self, task: Task) -> Any:
        self.text_format = escape(task.fields.get("figures", ""))
        return super().render(task)


class TimeLeft:
    """The time left of a plan, by the pace of the phase under way.

    A phase is measured from half an epoch on; until then, it is assumed to run at the pace of the phase before.

    Example:
        >>> clock = TimeLeft()
        >>> clock.seconds(0, 0.0, 10, now=100.0) is None
        True
        >>> clock.seconds(0, 0.5, 10, now=110.0)  # 20 s an epoch, 9.5 epochs left
        190.0
        >>> clock.seconds(1, 1.0, 10, now=120.0), clock.seconds(1, 2.0, 10, now=125.0)
        (180.0, 40.0)
    """

    def __init__(self) -> None:
        self._phase: int | None = None
        self._since = (0.0, 0.0)
        self._pace: float | None = None

    def seconds(self, phase: int, position: float, total: int, now: float) -> float | None:
        """Seconds left, None before there is a pace.

        Args:
            phase: index of the phase under way.
            position: epochs done, of all phases; a fraction within an epoch.
            total: epochs of the run.
            now: seconds of a clock.
        """
        if phase != self._phase:
            self._phase, self._since = phase, (now, position)
        done = position - self._since[1]
        if done >= 0.5 or (self._pace is None and done > 0):
            pace = (now - self._since[0]) / done
            if done < 0.5:
                return pace * (total - position)  # a first guess, not kept
            self._pace = pace
        return None if self._pace is None else self._pace * max(0.0, total - position)


def printed(key: str, value: float) -> str:
    """A logged value as it is printed: fractions in percent.

    Example:
        >>> printed("val/general/accuracy", 0.455), printed("train/loss", 2.0627)
        ('45.5 %', '2.063')
    """
    entry = ENTRIES.get(key.removeprefix("val/"))
    return f"{100 * value:.4g} %" if entry is not None and entry.unit == "fraction" else f"{value:.4g}"


def phase_description(module: LightningModule, epoch: int, max_epochs: int | None) -> str:
    """The place of a run in its plan, counted from 1.

    Args:
        module: a model with phases.
        epoch: 0-based epoch of the run.
        max_epochs: epochs of the run; the length of the plan if None or -1.

    Example:
        >>> from types import SimpleNamespace
        >>> from protometry.lightning_modules.phases import Phase, PhasePlan
        >>> plan = PhasePlan((Phase("warm", 1, {"head": 0.1}, {}), Phase("joint", 9, {"head": 0.1}, {})))
        >>> phase_description(SimpleNamespace(phases=lambda: plan), 3, -1)
        'phase joint 3/9 · epoch 4/10'
    """
    plan = model_of(module).phases()
    index, within = plan.locate(epoch)
    phase = plan.phases[index]
    total = plan.total_epochs if max_epochs in (None, -1) else max_epochs
    return f"phase {phase.name} {within + 1}/{phase.epochs} · epoch {epoch + 1}/{total}"
