"""What a run says before its first batch and after its last one, each on one screen."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

import torch
from lightning import Callback, LightningModule, Trainer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from callbacks.run.checkpoint import RunCheckpoint
from callbacks.run.progress import ACCURACY
from callbacks.run.tensorboard_logger import RunTensorBoardLogger
from callbacks.run.wandb_logger import RunWandbLogger
from lightning_modules.contract import InterpretableModel
from lightning_modules.phases import Phase, PhasePlan

PLAIN_WIDTH = 120  # of a file: there is room for whole names
LEFT_BEHIND = "checkpoints/ metrics.csv training.png prototypes/ explanations/"


class RunSummary(Callback):
    """Prints the model, its parameters, the phases, the data and where everything will lie; and what came of it."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._first = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print on rank zero what is about to be trained."""
        self._began, self._first = time.monotonic(), trainer.current_epoch
        if trainer.is_global_zero:
            console = _console()
            for line in _about(trainer, pl_module):
                console.print(line, highlight=False)
            console.print(_phases(cast(InterpretableModel, pl_module).phases(), self._first))
            console.print(*_places(trainer), sep="\n", highlight=False, soft_wrap=True)

    def say_end(self, trainer: Trainer, result: dict[str, Any] | None) -> None:
        """Print the few numbers and paths that matter.

        Args:
            trainer: after ``fit``.
            result: content of ``metrics.json``, if the run was evaluated.
        """
        if not trainer.is_global_zero:
            return
        minutes, seconds = divmod(round(time.monotonic() - self._began), 60)
        lines = [f"Trained {trainer.current_epoch - self._first} epochs in {minutes} min {seconds:02d} s."]
        checkpoint = next((c for c in _callbacks(trainer) if isinstance(c, RunCheckpoint)), None)
        if checkpoint is not None:
            if checkpoint.best_score is not None:
                name = checkpoint.monitor.removeprefix("val/")
                lines.append(f"validation  {name} {checkpoint.best_score:.4g} at best")
            if result and (entry := result["metrics"].get(ACCURACY.removeprefix("val/"))):
                lines.append(f"{result['split']:<11} general/accuracy {entry['value']:.4g} on {entry['n']} images")
            lines.append(f"checkpoint  {escape(str(checkpoint.best_or_last(trainer)))}")
        if (curves := Path(trainer.default_root_dir) / "training.png").exists():
            lines.append(f"curves      {escape(str(curves))}")
        lines.append(f"run folder  {escape(trainer.default_root_dir)}")
        _console().print(*lines, sep="\n", highlight=False, soft_wrap=True)


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=PLAIN_WIDTH)


def _callbacks(trainer: Trainer) -> list[Callback]:
    return cast("list[Callback]", trainer.callbacks)  # type: ignore[attr-defined]


def _about(trainer: Trainer, module: LightningModule) -> list[str]:
    """Model, parameters, data and hardware."""
    datamodule: Any = trainer.datamodule  # type: ignore[attr-defined]
    model = cast(InterpretableModel, module)
    groups = {name: sum(p.numel() for p in parameters) for name, parameters in model.parameter_groups().items()}
    units = model.units()
    height, width = datamodule.image_size
    images = [f"{len(datamodule.dataset('train')):,} training"]
    images += [f"{len(datamodule.dataset('val')):,} validation"] if datamodule.has_validation else []
    device = trainer.strategy.root_device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    split = ", ".join(f"{group} {_short(count)}" for group, count in groups.items())
    return [
        f"[bold]{type(module).__name__}[/] on [bold]{type(datamodule).__name__}[/]",
        f"units       {int(units.active.sum())} of kind {units.kind}, for {len(datamodule.class_names)} classes",
        f"parameters  {_short(sum(groups.values()))}: {split}",
        f"data        {', '.join(images)} images of {height} × {width} pixels",
        f"hardware    {trainer.world_size} × {escape(name)}, precision {trainer.precision}, batches of "
        f"{datamodule.batch_size}, {trainer.num_training_batches} in an epoch",
    ]


def _phases(plan: PhasePlan, done: int) -> Table:
    """A row per phase; of a resumed run, how much of it is done."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("phase", no_wrap=True)
    table.add_column("epochs", justify="right", no_wrap=True)
    for name in ("trained, with its learning rate", "actions"):
        table.add_column(name)
    start = 0
    for phase in plan.phases:
        past = min(max(done - start, 0), phase.length)
        epochs = f"{past} of {phase.length}" if past else str(phase.length)
        rates = ", ".join(f"{group} {rate:.2g}" for group, rate in phase.trainable.items())
        table.add_row(escape(phase.name), epochs, escape(rates), escape(_actions(phase)))
        start += phase.length
    return table


def _actions(phase: Phase) -> str:
    first, last = ", ".join(phase.on_enter), ", ".join(phase.on_exit)
    return "; ".join(filter(None, [first and f"first {first}", last and f"at the end {last}"]))


def _places(trainer: Trainer) -> list[str]:
    """Where everything will lie."""
    lines = [f"run folder  {escape(trainer.default_root_dir)}", f"            {LEFT_BEHIND}"]
    for logger in trainer.loggers:
        if isinstance(logger, RunWandbLogger):
            mode = "failed" if logger.failed else "offline" if logger.is_offline else "online"
            lines.append(f"W&B         {mode}, run {logger.run_id} of project {escape(str(logger.name))}")
        elif isinstance(logger, RunTensorBoardLogger):
            lines.append(f"TensorBoard tensorboard --logdir {escape(logger.log_dir)}")
    return [*lines, ""]


def _short(count: int) -> str:
    """A number of parameters: 94800 -> 94.8 K."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "K")):
        if count >= size:
            return f"{count / size:.1f} {letter}"
    return str(count)
