"""Evaluate checkpoints: ``python evaluate.py run --ckpt_path runs/quickstart/checkpoints/last.ckpt``."""

from __future__ import annotations

import importlib
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jsonargparse import auto_cli
from lightning import Trainer, seed_everything
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_info, rank_zero_only
from lightning.pytorch.utilities.exceptions import SIGTERMException
from rich.console import Console
from rich.table import Table

from callbacks import Evaluation, Interpretability, PhaseProgressBar, RunCheckpoint, read_checkpoint
from callbacks.interpretability import announce_directions
from callbacks.projection import full_precision
from datamodules.base import ImageDataModule
from lightning_modules import InterpretableModule

EvaluatedSplit = Literal["test", "val"]


@dataclass(frozen=True)
class Hardware:
    """Where an evaluation runs.

    Args:
        accelerator: as for ``lightning.Trainer``.
        devices: number of devices, their indices, or "auto".
        num_nodes: number of machines.
    """

    accelerator: str = "auto"
    devices: int | list[int] | str = 1
    num_nodes: int = 1


@dataclass(frozen=True)
class Request:
    """One evaluation.

    Args:
        ckpt_path: checkpoint of a run.
        suite: metric families or single keys.
        split: which split of the data.
        seed: seed of perturbations.
        overwrite: replace an earlier result of the same request.
    """

    ckpt_path: Path
    suite: tuple[str, ...] = ("all",)
    split: EvaluatedSplit = "test"
    seed: int = 0
    overwrite: bool = False

    @property
    def run_folder(self) -> Path:
        """The folder of the run the checkpoint belongs to."""
        folder = self.ckpt_path.parent
        return folder.parent if folder.name == "checkpoints" else folder

    def identity(self, step: int) -> dict[str, Any]:
        """What tells two evaluations of a run apart; ``step`` is the checkpoint's, which a resumed run replaces."""
        name = self.ckpt_path.resolve().relative_to(self.run_folder.resolve()).as_posix()
        return {"checkpoint": name, "step": step, "split": self.split, "suite": list(self.suite), "seed": self.seed}

    def folder(self, step: int) -> Path:
        """Where the result goes: ``evaluation``, or a folder of its own if another result already lies there.

        Args:
            step: the checkpoint's ``global_step``.

        Raises:
            FileExistsError: if this very evaluation has been done and ``overwrite`` is not set.
        """
        first = self.run_folder / "evaluation"
        seed = [f"seed{self.seed}"] if self.seed else []
        words = [self.ckpt_path.stem, f"step{step}", self.split, *self.suite, *seed]
        own = first / "-".join(words).replace("/", ".")
        for folder in (first, own):
            if not (folder / "metrics.json").exists():
                return folder
            earlier = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
            identity = self.identity(step)
            if {key: earlier.get(key) for key in identity} == identity:
                if self.overwrite:
                    return folder
                raise FileExistsError(
                    f"Expected no earlier result, but {folder / 'metrics.json'} holds this evaluation already. "
                    "Pass `--overwrite true` to replace it."
                )
        raise FileExistsError(f"Expected {own} to be free, but it holds another result. Move it away.")


def run(  # noqa: PLR0913 - every argument is a flag
    ckpt_path: str,
    suite: list[str] = ["all"],  # noqa: B006  (the command line shows it as the default)
    split: EvaluatedSplit = "test",
    seed: int = 0,
    overwrite: bool = False,
    trainer: Hardware = Hardware(),
    data_root: str | None = None,
) -> None:
    """Evaluate one checkpoint; the run folder it lies in says everything else.

    Args:
        ckpt_path: the checkpoint file.
        suite: metric families or single keys; "all" for every one.
        split: "test" or "val".
        seed: seed of perturbations.
        overwrite: replace an earlier result of the same evaluation.
        trainer: hardware to run on.
        data_root: where the data lies now, if it has moved since training.
    """
    request = Request(Path(ckpt_path), tuple(suite), split, seed, overwrite)
    evaluate(request, trainer, {"root": data_root} if data_root else {})


def after_fit(trainer: Trainer) -> None:
    """Evaluate the best checkpoint of a finished run with the run's own suite, on the same devices."""
    engine = next(c for c in trainer.callbacks if isinstance(c, Interpretability))  # type: ignore[attr-defined]
    checkpoint = next(c for c in trainer.callbacks if isinstance(c, RunCheckpoint))  # type: ignore[attr-defined]
    request = Request(checkpoint.best_or_last(trainer), tuple(engine.requested))
    on_cpu = trainer.strategy.root_device.type == "cpu"
    devices = trainer.num_devices if on_cpu else trainer.device_ids
    hardware = Hardware("cpu" if on_cpu else "auto", devices, trainer.num_nodes)
    try:
        evaluate(request, hardware, {}, trainer.loggers)
    except FileExistsError as done:
        rank_zero_info(str(done))


def evaluate(
    request: Request, hardware: Hardware, data_changes: dict[str, Any], loggers: Sequence[Logger] = ()
) -> dict[str, Any]:
    """Run one evaluation, write ``metrics.json`` and print the table.

    Args:
        request: what to evaluate.
        hardware: where.
        data_changes: arguments of the data module that differ from training, such as ``root``.
        loggers: receive the same numbers under the same keys.

    Returns:
        The content of ``metrics.json``.

    Raises:
        FileNotFoundError: if the checkpoint is missing.
        FileExistsError: if the result exists.
        ValueError: if the checkpoint is foreign or does not fit the data.
    """
    checkpoint = read_checkpoint(request.ckpt_path, mmap=True)
    step = checkpoint["global_step"]
    folder = request.folder(step)
    seed_everything(request.seed, verbose=False)
    module = _module(request, checkpoint)
    datamodule = _datamodule(request, checkpoint["datamodule_hyper_parameters"], data_changes)
    if datamodule.num_classes != module.num_classes:
        raise ValueError(
            f"Expected data with the {module.num_classes} classes of {request.ckpt_path}, but "
            f"{type(datamodule).__name__} has {datamodule.num_classes}."
        )
    engine = Interpretability(list(request.suite))
    trainer = Trainer(
        accelerator=hardware.accelerator,
        devices=hardware.devices,
        num_nodes=hardware.num_nodes,
        logger=False,
        callbacks=[engine, PhaseProgressBar()],
        default_root_dir=request.run_folder,
        enable_checkpointing=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    start = time.perf_counter()
    with full_precision(trainer.strategy.root_device):
        trainer.test(module, datamodule, verbose=False)
    seconds = time.perf_counter() - start
    result = {"schema": 1, **request.identity(step)}
    result |= _describe(request, checkpoint["hyper_parameters"], datamodule)
    result |= _measured(engine.evaluation, len(datamodule.dataset(request.split)), seconds)
    if trainer.is_global_zero:
        _write(result, folder / "metrics.json")
        _log(result, loggers, max(0, step - 1))  # beside the validation of the epoch that ended with the checkpoint
        show(result, folder)
    return result


def _module(request: Request, checkpoint: dict[str, Any]) -> InterpretableModule:
    """The model of the run with the weights of the checkpoint."""
    stored = checkpoint["hyper_parameters"]
    trunk = {**(stored.get("trunk") or {"name": "sketch"}), "weights": None}  # the checkpoint holds the weights
    module: InterpretableModule = _rebuild(InterpretableModule, stored, {"trunk": trunk})
    try:
        module.load_state_dict(checkpoint["state_dict"])
    except RuntimeError as error:
        raise ValueError(
            f"Expected {request.ckpt_path} to hold the weights of {stored['_class_path']}, but got "
            f"{' '.join(str(error).split())}"
        ) from error
    return module


def _rebuild(base: Any, stored: dict[str, Any], changes: dict[str, Any]) -> Any:
    """An object from the class path and the arguments a checkpoint holds."""
    module, _, name = str(stored.get("_class_path", "")).rpartition(".")
    kind = getattr(importlib.import_module(module), name, None) if module else None
    if not (isinstance(kind, type) and issubclass(kind, base)):
        raise ValueError(
            f"Expected the checkpoint to name a {base.__name__}, but it names {stored.get('_class_path')!r}."
        )
    return kind(**{key: value for key, value in stored.items() if not key.startswith("_")} | changes)


def _datamodule(request: Request, stored: dict[str, Any], changes: dict[str, Any]) -> ImageDataModule:
    """The data module of the run, held to the run's own split."""
    split_file = request.run_folder / "split.json"
    if "split_file" in stored and split_file.exists():
        changes = {"split_file": str(split_file)} | changes
    datamodule: ImageDataModule = _rebuild(ImageDataModule, stored, changes)
    datamodule.evaluated_split = request.split
    return datamodule


def _describe(request: Request, model: dict[str, Any], datamodule: ImageDataModule) -> dict[str, Any]:
    best, settings = request.ckpt_path.stem == "best", datamodule.hparams
    return {
        "model": model["_class_path"].rsplit(".", 1)[-1],
        "dataset": type(datamodule).__module__.removeprefix("datamodules.").split(".")[0],
        "fold": settings.get("fold"),
        "explainer": None,
        "protocol": {
            "crop": settings.get("crop"),
            "weights": (model.get("trunk") or {}).get("weights"),
            "augmentation": settings.get("augmentation"),
            "selection": "best validation score" if best else "last epoch",
        },
    }


def _measured(evaluation: Evaluation, images: int, seconds: float) -> dict[str, Any]:
    timing = {"seconds": seconds, "images": images, "images_per_second": images / seconds}
    return {"metrics": evaluation.metrics, "skipped": evaluation.skipped, "timing": timing}


def _log(result: dict[str, Any], loggers: Sequence[Logger], step: int) -> None:
    """The same numbers under the same keys."""
    announce_directions(loggers, {key: entry["higher_is_better"] for key, entry in result["metrics"].items()})
    for logger in loggers:
        logger.log_metrics({key: entry["value"] for key, entry in result["metrics"].items()}, step)
        logger.save()
        logger.finalize("success")


def _write(result: dict[str, Any], path: Path) -> None:
    """Strict JSON that is there as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".part")
    text = json.dumps(_strict(result), indent=2, allow_nan=False, ensure_ascii=False)
    temporary.write_text(text + "\n", encoding="utf-8")
    temporary.replace(path)


def _strict(value: Any) -> Any:
    """Undefined numbers become null."""
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@rank_zero_only
def show(result: dict[str, Any], folder: Path) -> None:
    """Print the metrics, what was skipped and why, and where everything lies.

    Args:
        result: content of ``metrics.json``.
        folder: where it was written.
    """
    console = Console()
    console = console if console.is_terminal else Console(width=120)  # a log has room for whole names
    table = Table(title=f"{result['model']} on {result['dataset']} ({result['split']}), {result['checkpoint']}")
    for name in ("metric", "value", "95 % interval", "n", "unit", "better"):
        table.add_column(name, justify="right" if name in ("value", "95 % interval", "n") else "left", no_wrap=True)
    for key, entry in result["metrics"].items():
        low, high = entry["ci95"]
        interval = "–" if not math.isfinite(low) else f"{low:.4f} … {high:.4f}"
        better = {True: "↑", False: "↓"}.get(entry["higher_is_better"], "")
        value = f"{entry['value']:.4f}" if math.isfinite(entry["value"]) else "undefined"
        table.add_row(key, value, interval, str(entry["n"]), entry["unit"], better)
    console.print(table)
    for key, reason in result["skipped"].items():
        console.print(f"not applicable: {key}, because {reason}", highlight=False, soft_wrap=True)
    run_folder = folder.parent if folder.name == "evaluation" else folder.parent.parent
    for name, path in (
        ("metrics", folder / "metrics.json"),
        ("prototypes", run_folder / "prototypes"),
        ("logs", run_folder / "metrics.csv"),
        ("checkpoints", run_folder / "checkpoints"),
    ):
        if path.exists():
            console.print(f"{name + ':':<12} {path}", highlight=False, soft_wrap=True)


def main(args: list[str] | None = None) -> None:
    """Run the command line, from the shell or in process."""
    auto_cli({"run": run}, args=args, as_positional=False)


def from_shell(command: Callable[[], object]) -> None:
    """Run a command line, with exit codes: 2 after one line for a mistake of the user, 143 if ended by SIGTERM.

    Args:
        command: parses ``sys.argv`` and works; the texts of its errors that need no traceback start with "Expected".
    """
    try:
        command()
    except SIGTERMException:
        rank_zero_info("Stopped by SIGTERM; a training run goes on from its last epoch with `--ckpt_path last`.")
        sys.exit(143)
    except (ValueError, TypeError, FileNotFoundError, FileExistsError) as error:
        found: BaseException | None = error  # the parser wraps what a constructor raises
        while found is not None and not str(found).startswith("Expected"):
            found = found.__cause__
        if found is None:
            raise
        print(f"error: {found}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    from_shell(main)
