"""The run folder, and whether a run may start there: nothing of an earlier run is ever overwritten."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch.cli import SaveConfigCallback

from run_folder.atomic import write_whole
from run_folder.checkpoint_file import read_checkpoint

LINKED_MODEL_ARGUMENTS = ("num_classes", "num_concepts", "image_size")  # facts of the data, checked there
FREE_DATA_ARGUMENTS = ("root", "num_workers", "eval_batch_size")  # change no result


class SaveConfig(SaveConfigCallback):
    """Writes ``config.yaml`` and ``split.json`` into the folder of a training run and sends the config to its loggers.

    The config is the requested one; values filled in by the command line (folders, the checkpoint to resume from)
    belong to one start of the run and are left out.
    """

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Nothing: others still check their settings."""

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save on rank zero, once all settings have been checked; outside training, nothing is saved."""
        if trainer.is_global_zero:
            self.save_config(trainer, pl_module, "fit")

    def save_config(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Write the files, then start the loggers."""
        folder = Path(trainer.default_root_dir)
        folder.mkdir(parents=True, exist_ok=True)
        save_split(trainer.datamodule.split_record(), folder / "split.json")  # type: ignore[attr-defined]
        write_whole(folder / "config.yaml", self.parser.dump(self.config, skip_none=False))
        for logger in trainer.loggers:
            logger.log_hyperparams(json.loads(self.parser.dump(self.config, format="json")))


def save_split(record: dict[str, Any] | None, path: Path) -> None:
    """Write the split of a fresh run; a resumed one must have the same.

    Args:
        record: the part of every image, or None for data without files.
        path: of ``split.json``.

    Raises:
        ValueError: if the data are split differently than when the run began.
    """
    if record is None:
        return
    text = json.dumps(record, indent=1) + "\n"
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise ValueError(
            f"Expected the split this run began with, but {path} differs from what the data gives now. Restore the "
            "data, or start another run with `--experiment NAME`."
        )
    write_whole(path, text)


def run_name(model: str, data: str, fold: int | None, seed: int) -> str:
    """The folder of a run without a name.

    Args:
        model: import path of the model class.
        data: import path of the data module class.
        fold: fold of the data, if any.
        seed: seed of the run.

    Example:
        >>> run_name("lightning_modules.ProtoPNet", "datamodules.Cub200", 2, 0)
        'cub200/protopnet-fold2-seed0'
    """
    parts = [model.rsplit(".", 1)[-1].lower(), *([f"fold{fold}"] if fold is not None else []), f"seed{seed}"]
    return f"{data.rsplit('.', 1)[-1].lower()}/{'-'.join(parts)}"


def check_name(experiment: str) -> str:
    """The name of a run, which must be a separate folder below the folder of all runs.

    Args:
        experiment: such as ``quickstart`` or ``cub200/protopnet-fold0``.

    Returns:
        The same.

    Raises:
        ValueError: if the name is empty, absolute, leads out of the folder of all runs or cannot be printed.
    """
    path = PurePath(experiment)
    if (
        not experiment.strip()
        or not path.parts
        or path.is_absolute()
        or ".." in path.parts
        or not experiment.isprintable()
    ):
        raise ValueError(
            f"Expected argument `experiment` to name a folder below `--runs`, but got {experiment!r}. To store runs "
            "elsewhere, pass `--runs DIR`."
        )
    return experiment


def given_folder(save_dir: str | None) -> str:
    """The folder of a logger; there is no default, which could contain another run.

    Args:
        save_dir: the run folder, which the command line fills in.

    Returns:
        The same.

    Raises:
        ValueError: without a folder.
    """
    if not save_dir:
        raise ValueError(f"Expected argument `save_dir` to be the run folder, but got {save_dir!r}.")
    return save_dir


def resume_path(folder: Path, ckpt_path: str | None) -> Path | None:
    """The checkpoint from which a run continues; a run requeued by a cluster needs no ``ckpt_path``.

    Args:
        folder: the run folder.
        ckpt_path: "last", a file, or None for a fresh run.

    Returns:
        The file, or None for a fresh run.

    Raises:
        FileNotFoundError: if "last" is requested and does not exist.
        ValueError: if a fresh run, or one that continues another, would overwrite an earlier run.
    """
    last = folder / "checkpoints" / "last.ckpt"
    if ckpt_path == "last":
        if not last.is_file():
            raise FileNotFoundError(
                f"Expected {last} to resume from, but it does not exist. Leave `--ckpt_path` out to start the run, or "
                "name its folder with `--experiment`."
            )
        return last
    if ckpt_path is not None and (belongs_to(folder, ckpt_path) or not last.exists()):
        return Path(ckpt_path)
    if ckpt_path is None and any(queued := list(folder.glob("hpc_ckpt_*.ckpt"))):
        return max([*queued, last], key=lambda path: path.stat().st_mtime if path.exists() else 0.0)
    if last.exists():
        raise ValueError(
            f"Expected a folder without a run, but {folder} holds one. Resume it with `--ckpt_path last`, or start "
            "another with `--experiment NAME`."
        )
    return None


def belongs_to(folder: Path, ckpt_path: str | Path) -> bool:
    """Whether a checkpoint lies in a run folder, so that resuming from it continues that run."""
    return folder.resolve() in Path(ckpt_path).resolve().parents


def check_unchanged(path: Path, model: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse to resume with hyper-parameters that differ from the checkpoint's.

    Args:
        path: the checkpoint.
        model: the requested class_path and init_args of the model.
        data: the same for the data module.

    Returns:
        The checkpoint.

    Raises:
        ValueError: naming every argument that differs, down to the keys of its mappings, with both values.
    """
    checkpoint = read_checkpoint(path, mmap=True)
    differing = []
    for section, requested, stored, free in (
        ("model", model, checkpoint["hyper_parameters"], LINKED_MODEL_ARGUMENTS),
        ("data", data, checkpoint["datamodule_hyper_parameters"], FREE_DATA_ARGUMENTS),
    ):
        if (theirs := stored.get("_class_path")) != (ours := requested["class_path"]):
            differing.append(f"{section}: {theirs} in the checkpoint, {ours} requested")
        for name, value in requested.get("init_args", {}).items():
            if name not in free and name in stored:
                differing += _differences(f"{section}.{name}", _plain(stored[name]), _plain(value))
    if differing:
        raise ValueError(
            f"Expected the settings that {path} was trained with, but got others. {'; '.join(differing)}. Use the "
            "`config.yaml` next to the checkpoint, or start another run with `--experiment NAME`."
        )
    return checkpoint


def _differences(key: str, stored: Any, requested: Any) -> list[str]:
    """The differences, key by key."""
    if stored == requested:
        return []
    if not (isinstance(stored, Mapping) and isinstance(requested, Mapping)):
        return [f"{key}: {stored!r} in the checkpoint, {requested!r} requested"]
    nothing = _Nothing()
    pairs = {name: (stored.get(name, nothing), requested.get(name, nothing)) for name in {**stored, **requested}}
    return [line for name, values in pairs.items() for line in _differences(f"{key}.{name}", *values)]


class _Nothing:
    """The value of a missing key, which equals null."""

    def __repr__(self) -> str:
        return "nothing"


def _plain(value: Any) -> Any:
    """Tuples and lists compare equal."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
