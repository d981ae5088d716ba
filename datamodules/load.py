"""Data modules rebuilt from the checkpoints of their runs, with the split of the run."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from datamodules.base import ImageDataModule

KEY = "datamodule_hyper_parameters"


def load_datamodule(path: str | Path, **changes: Any) -> ImageDataModule:
    """The data module of a run, held to the split that the run was trained with.

    ::

        data = load_datamodule("runs/quickstart/checkpoints/last.ckpt")
        moved = load_datamodule("runs/cub200/checkpoints/best.ckpt", root="/data/CUB_200_2011")

    Args:
        path: a checkpoint that ``train.py`` has written; the ``split.json`` of its run folder decides the split.
        changes: arguments of the data module that replace those of the run, such as ``root``.

    Returns:
        The data module, not yet set up.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is no checkpoint of this project, or names something other than a data module.
    """
    path = Path(path)
    stored = _stored_arguments(path)
    split_file = run_folder(path) / "split.json"
    if "split_file" in stored and split_file.exists():
        changes = {"split_file": str(split_file)} | changes
    module, _, name = str(stored.get("_class_path", "")).rpartition(".")
    kind = getattr(importlib.import_module(module), name, None) if module else None
    if not (isinstance(kind, type) and issubclass(kind, ImageDataModule)):
        raise ValueError(
            f"Expected the checkpoint to name a {ImageDataModule.__name__}, but it names {stored.get('_class_path')!r}."
        )
    return kind(**{name: value for name, value in stored.items() if not name.startswith("_")} | changes)


def run_folder(path: Path) -> Path:
    """The folder of the run a checkpoint belongs to.

    Example:
        >>> run_folder(Path("runs/quickstart/checkpoints/last.ckpt")).name
        'quickstart'
    """
    return path.parent.parent if path.parent.name == "checkpoints" else path.parent


def _stored_arguments(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"Expected argument `path` to be a checkpoint file, but {path} does not exist.")
    try:
        stored = torch.load(path, map_location="cpu", mmap=True, weights_only=True)[KEY]
    except Exception as error:  # an unpickler that is fed a foreign or damaged file raises any type
        raise ValueError(
            f"Expected {path} to be a checkpoint with the arguments of a data module, but it is damaged or foreign "
            f"({str(error).splitlines()[0] if str(error) else type(error).__name__}). Use another checkpoint of the "
            "run."
        ) from error
    if not isinstance(stored, Mapping):
        raise ValueError(f"Expected {path} to hold arguments under {KEY!r}, but it holds {type(stored).__name__}.")
    return stored
