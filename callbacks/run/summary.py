"""What a run says before its first batch and after its last one, each on one screen."""

from __future__ import annotations

import shlex
import time
from itertools import accumulate
from pathlib import Path
from typing import Any, cast

import torch
from lightning import Callback, LightningModule, Trainer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import nn

from protometry.callbacks.run.checkpoint import RunCheckpoint
from protometry.callbacks.run.csv_logger import RunCSVLogger
from protometry.callbacks.run.loggers import RunTensorBoardLogger
from protometry.callbacks.run.progress import ACCURACY, printed
from protometry.callbacks.run.training_record import projected
from protometry.callbacks.run.wandb_logger import RunWandbLogger
from protometry.callbacks.trainer_parts import callback_of, datamodule_of, model_of
from protometry.lightning_modules.phases import Phase, PhasePlan
from protometry.run_folder.command_line.messages import counted, program
from protometry.run_folder.command_line.user_path import shown
from protometry.run_folder.layout import REPORT
from protometry.run_folder.lock import LOCK
from protometry.run_folder.trusted_classes import foreign_packages

PLAIN_WIDTH = 120  # of a file: there is room for whole names


class RunSummary(Callback):
    """Prints the model, its parameters, the phases, the data and where everything will lie; and what came of it."""

    def __init__(self) -> None:
        self._began, self._seconds = time.monotonic(), 0.0
        self._first = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print on rank zero what is about to be trained."""
        self._began, self._first = time.monotonic(), trainer.current_epoch
        if trainer.is_global_zero:
            console, plan = _console(), model_of(pl_module).phases()
            for line in _about(trainer, pl_module):
                console.print(line, highlight=False)
            console.print(_phases(plan, self._first))
            console.print(*_places(trainer, plan), sep="\n", highlight=False, soft_wrap=True)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop the clock."""
        self._seconds = time.monotonic() - self._began

    def say_end(self, trainer: Trainer, evaluated: tuple[dict[str, Any], Path] | None) -> None:
        """Print the few numbers and paths that matter, and at last the pages to look at or the command for them."""
        if not trainer.is_global_zero:
            return
        minutes, seconds = divmod(round(self._seconds), 60)
        epochs = counted(trainer.current_epoch - self._first, "epoch")
        lines = [f"Trained {epochs} in {minutes} min {seconds:02d} s."]
        checkpoint = callback_of(trainer, RunCheckpoint)
        if checkpoint is not None and not (path := checkpoint.best_or_last(trainer)).exists():
            checkpoint = None  # it has saved nothing
        if checkpoint is not None:
            if checkpoint.best_score is not None:
                best = printed(checkpoint.monitor, checkpoint.best_score)
                where = _chosen_among(model_of(trainer.lightning_module).phases())
                lines.append(f"validation  {checkpoint.monitor.removeprefix('val/')} {best} at best{where}")
            if evaluated and (entry := (result := evaluated[0])["metrics"].get(ACCURACY.removeprefix("val/"))):
                accuracy, images = printed(ACCURACY, entry["value"]), counted(entry["n"], "image")
                lines.append(f"{result['split']:<11} general/accuracy {accuracy} on {images}")
            lines.append(f"checkpoint  {shown(path)}")
        if (curves := Path(trainer.default_root_dir) / "training.png").exists():
            lines.append(f"curves      {shown(curves)}")
        if any(path.name != LOCK for path in Path(trainer.default_root_dir).glob("*")):
            lines.append(f"run folder  {shown(trainer.default_root_dir)}")
        if checkpoint is not None:
            lines += _pages(trainer, evaluated)
        _console().print(*map(escape, lines), sep="\n", highlight=False, soft_wrap=True)


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=PLAIN_WIDTH)


def _chosen_among(plan: PhasePlan) -> str:
    """Which epochs the best checkpoint is chosen among, if not all."""
    phases = zip(plan.phases, accumulate(phase.length for phase in plan.phases), strict=True)
    chosen = {phase.name: projected(plan, end) for phase, end in phases if phase.selectable}
    if not chosen or len(chosen) == len(plan.phases):
        return ""
    names = f"phase{'s' * (len(chosen) > 1)} {', '.join(chosen)}"
    return f" among the epochs after projection ({names})" if all(chosen.values()) else f" among the epochs of {names}"


def evaluate_command(trainer: Trainer, command: str = "run") -> str:
    """What to type to evaluate the checkpoint that a run has chosen."""
    parts = (trainer.lightning_module, getattr(trainer, "datamodule", None))
    packages = foreign_packages([getattr(part, "hparams", None) for part in parts])
    allowed = f" --allow_classes {','.join(packages)}" if packages else ""
    path = shown(cast(RunCheckpoint, callback_of(trainer, RunCheckpoint)).best_or_last(trainer))
    return f"{program('evaluate')} {command} --ckpt_path {shlex.quote(path)}{allowed}"


def _pages(trainer: Trainer, evaluated: tuple[dict[str, Any], Path] | None) -> list[str]:
    """Where the pages of the evaluation lie, or the command that makes them; nothing if nothing is explained."""
    if evaluated is None:
        return [f"evaluate    {evaluate_command(trainer)}"]
    result, folder = evaluated
    if not result["explainer"]:
        return []
    whole = (folder / REPORT / "manifest.json").exists()  # written last
    return [f"pages       {shown(folder / 'report' / 'index.html') if whole else evaluate_command(trainer, 'report')}"]


def _about(trainer: Trainer, module: LightningModule) -> list[str]:
    """Model, parameters, data and hardware."""
    datamodule = datamodule_of(trainer)
    model = model_of(module)
    groups = {name: sum(p.numel() for p in parameters) for name, parameters in model.parameter_groups().items()}
    units = model.units()
    height, width = datamodule.image_size
    images = [f"{len(datamodule.dataset('train')):,} training"]
    images += [f"{len(datamodule.dataset('val')):,} validation"] if _validates(trainer) else []
    device = trainer.strategy.root_device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    split = ", ".join(f"{group} {_short(count)}" for group, count in groups.items())
    return [
        f"[bold]{type(module).__name__}[/] on [bold]{escape(datamodule.display_name)}[/]",
        f"units       {int(units.active.sum())} of kind {units.kind}, for {len(datamodule.class_names)} classes",
        f"parameters  {_short(sum(groups.values()))}: {split}",
        f"data        {', '.join(images)} images of {height} × {width} pixels",
        *(f"cells       {escape(caveat)}" for caveat in model.geometry.caveats()),
        f"hardware    {trainer.world_size} × {escape(name)}, precision {trainer.precision}, batches of "
        f"{datamodule.batch_size}, {trainer.num_training_batches} in an epoch",
        *_faster(trainer, module),
    ]


def _faster(trainer: Trainer, module: LightningModule) -> list[str]:
    """Advice on a CPU with instructions for bfloat16; depthwise convolutions do not gain from them."""
    can: Any = getattr(torch.cpu, "get_capabilities", dict)()  # torch 2.8 does not have it
    depthwise = any(isinstance(layer, nn.Conv2d) and layer.groups > 1 for layer in module.modules())
    on_cpu, full = trainer.strategy.root_device.type == "cpu", trainer.precision == "32-true"
    if depthwise or not (on_cpu and full and (can.get("amx_bf16") or can.get("avx512_bf16"))):
        return []
    return ["faster      `--trainer.precision bf16-mixed` makes training steps 1.6 to 2.6 times faster on this CPU"]


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
        rates = ", ".join(f"{group} {rate:.2g}" for group, rate in phase.rates.items())
        table.add_row(escape(phase.name), epochs, escape(rates), escape(_actions(phase)))
        start += phase.length
    return table


def _actions(phase: Phase) -> str:
    first, last = ", ".join(phase.on_enter), ", ".join(phase.on_exit)
    return "; ".join(filter(None, [first and f"first {first}", last and f"at the end {last}"]))


def _places(trainer: Trainer, plan: PhasePlan) -> list[str]:
    """Where everything that is written will lie."""
    if trainer.fast_dev_run:  # type: ignore[attr-defined]
        return ["run folder  none: a trial run writes no files", ""]
    actions = [action for phase in plan.phases for action in (*phase.on_enter, *phase.on_exit)]
    written = {
        "checkpoints/": callback_of(trainer, RunCheckpoint),
        "metrics.csv": any(isinstance(logger, RunCSVLogger) for logger in trainer.loggers),
        "training.png": True,
        "explanations/": True,
        "prototypes/": any(action.startswith("project") for action in actions),
    }
    lines = [f"run folder  {escape(shown(trainer.default_root_dir))}"]
    lines += [f"            {' '.join(name for name, there in written.items() if there)}"]
    if not _validates(trainer):
        lines.append("validation  none: curves show training alone, and the checkpoint to evaluate is the last one")
    elif (checkpoint := callback_of(trainer, RunCheckpoint)) and (among := _chosen_among(plan)):
        lines.append(f"best.ckpt   the best {checkpoint.monitor}{escape(among)}")
    for logger in trainer.loggers:
        if isinstance(logger, RunWandbLogger):
            mode = "offline" if logger.is_offline else "online"
            mode = "failed" if logger.failed else mode
            lines.append(f"W&B         {mode}, run {logger.run_id} of project {escape(str(logger.name))}")
        elif isinstance(logger, RunTensorBoardLogger):
            lines.append(f"TensorBoard tensorboard --logdir {escape(shown(logger.log_dir))}")
    return [*lines, ""]


def _validates(trainer: Trainer) -> bool:
    """Whether an epoch will be validated."""
    settings: Any = trainer  # mypy does not see all attributes of a trainer
    within_reach = (settings.check_val_every_n_epoch or 1) <= settings.max_epochs
    return bool(settings.datamodule.has_validation and settings.limit_val_batches and within_reach)


def _short(count: int) -> str:
    """A number of parameters: 94800 -> 94.8 K."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "K")):
        if count >= size:
            return f"{count / size:.1f} {letter}"
    return str(count)
