"""Data modules rebuilt from the checkpoints of their runs, with the split of the run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from checkpoints import read_checkpoint, run_folder, stored_class
from datamodules.base import ImageDataModule


def load_datamodule(path: str | Path, *, allow_classes: Sequence[str] = (), **changes: Any) -> ImageDataModule:
    """The data module of a run, held to the split that the run was trained with.

    ::

        data = load_datamodule("runs/quickstart/checkpoints/last.ckpt")
        moved = load_datamodule("runs/cub200/checkpoints/best.ckpt", root="/data/CUB_200_2011")

    Args:
        path: a checkpoint that ``train.py`` has written; the ``split.json`` of its run folder decides the split.
        allow_classes: packages whose classes the checkpoint may name besides those of this project; importing one runs
            its code. Modules in the folder of a run are never imported.
        changes: arguments of the data module that replace those of the run, such as ``root``.

    Returns:
        The data module, not yet set up.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is no checkpoint of this project, or names a class that is not allowed or is no data
            module, or if the data module has no argument of a name in ``changes``.
    """
    path = Path(path)
    stored = read_checkpoint(path, mmap=True)["datamodule_hyper_parameters"]
    kind = stored_class(stored, ImageDataModule, path, allow_classes)  # type: ignore[type-abstract]
    if unknown := [name for name in changes if name not in stored]:
        raise ValueError(
            f"Expected arguments of {kind.__name__}, the data of {path}, but got `{unknown[0]}`, which it does not "
            "have. Leave it out."
        )
    split_file = run_folder(path) / "split.json"
    if "split_file" in stored and split_file.exists():
        changes = {"split_file": str(split_file)} | changes
    return kind(**{name: value for name, value in stored.items() if not name.startswith("_")} | changes)
