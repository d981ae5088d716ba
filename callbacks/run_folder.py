"""Where a run lives, and whether it may start there: nothing of an earlier run is ever overwritten."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from callbacks.checkpoint import read_checkpoint

FREE_DATA_ARGUMENTS = ("root", "num_workers", "eval_batch_size")  # change no result


def run_name(model: str, data: str, fold: int | None, seed: int) -> str:
    """Folder of a run that was given no name.

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


def resume_path(folder: Path, ckpt_path: str | None) -> Path | None:
    """The checkpoint a run goes on from.

    Args:
        folder: the run folder.
        ckpt_path: "last", a file, or None for a fresh run (or one that a cluster has queued again).

    Returns:
        The file, or None for a fresh run.

    Raises:
        FileNotFoundError: if "last" is asked for and there is none.
        ValueError: if a fresh run would lie on top of an earlier one.
    """
    last = folder / "checkpoints" / "last.ckpt"
    if ckpt_path == "last":
        if not last.is_file():
            raise FileNotFoundError(
                f"Expected {last} to resume from, but it does not exist. Leave `--ckpt_path` out to start the run, or "
                "name its folder with `--experiment`."
            )
        return last
    if ckpt_path is not None:
        return Path(ckpt_path)
    if queued := sorted(folder.glob("hpc_ckpt_*.ckpt"), key=lambda path: path.stat().st_mtime):
        return queued[-1]
    if last.exists():
        raise ValueError(
            f"Expected a folder without a run, but {folder} holds one. Resume it with `--ckpt_path last`, or start "
            "another with `--experiment NAME`."
        )
    return None


def check_unchanged(path: Path, model: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse to resume under other hyper-parameters than those the checkpoint was trained with.

    Args:
        path: the checkpoint.
        model: requested class_path and init_args of the model; None stands for a value linked from the data.
        data: the same for the data module.

    Returns:
        The checkpoint.

    Raises:
        ValueError: naming every argument that differs, with both values.
    """
    checkpoint = read_checkpoint(path, mmap=True)
    differing = []
    for section, requested, stored, free in (
        ("model", model, checkpoint["hyper_parameters"], ()),
        ("data", data, checkpoint.get("datamodule_hyper_parameters", {}), FREE_DATA_ARGUMENTS),
    ):
        if (theirs := stored.get("_class_path")) != (ours := requested["class_path"]):
            differing.append(f"{section}: {theirs} in the checkpoint, {ours} requested")
        for name, value in requested.get("init_args", {}).items():
            if name not in free and value is not None and name in stored and _plain(stored[name]) != _plain(value):
                differing.append(f"{section}.{name}: {stored[name]!r} in the checkpoint, {value!r} requested")
    if differing:
        raise ValueError(
            f"Expected the settings that {path} was trained with, but got others. {'; '.join(differing)}. Use the "
            "`config.yaml` beside the checkpoint, or start another run with `--experiment NAME`."
        )
    return checkpoint


def _plain(value: Any) -> Any:
    """Tuples and lists compare equal, None entries of mappings do not count."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def place_loggers(loggers: Any, folder: Path, checkpoint: Mapping[str, Any]) -> None:
    """Tell the configured loggers their folder and, on resume, where the earlier segment ended.

    Args:
        loggers: parsed logger configuration; an argument of a logger is filled in only if it is None.
        folder: the run folder.
        checkpoint: the checkpoint resumed from, or an empty mapping.
    """
    known = {
        "save_dir": str(folder),
        "resume_step": checkpoint.get("global_step"),
        "run_id": checkpoint.get("logger_run_ids", {}).get("RunWandbLogger"),
    }
    for logger in loggers if isinstance(loggers, list) else []:
        for name, value in known.items():
            if name in logger.init_args and logger.init_args[name] is None:
                logger.init_args[name] = value
