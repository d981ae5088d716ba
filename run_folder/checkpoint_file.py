"""Checkpoint files of runs, read without running any code they may carry, and the folders of their runs."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from protometry.run_folder.checkpoint_schema import Checkpoint, is_bounded
from protometry.run_folder.command_line.first_look import check_checkpoint
from protometry.run_folder.command_line.former_names import with_current_names
from protometry.run_folder.command_line.user_path import user_path
from protometry.run_folder.schema import check_content
from protometry.run_folder.unreadable import why_unreadable

REMEDY = "Use another checkpoint of the run."


def read_checkpoint(path: str | Path, **options: Any) -> dict[str, Any]:
    """Load a checkpoint of this project without running any code it may carry.

    Args:
        path: the file.
        options: further arguments of ``torch.load``.

    Returns:
        Tensors and plain types.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is truncated, holds anything but tensors and plain types, or was not written by this project.
    """
    path = user_path(path)
    check_checkpoint(path)
    try:
        _check_records(path)
        checkpoint = torch.load(path, weights_only=True, **({"map_location": "cpu"} | options))
    except Exception as error:  # an unpickler that is fed a foreign or damaged file raises any type
        raise ValueError(
            f"Expected {path} to be a checkpoint with tensors and plain types only, but it is damaged or foreign "
            f"({why_unreadable(path, error)}). Use another checkpoint of the run."
        ) from error
    if not isinstance(checkpoint, dict):
        raise ValueError(f"Expected {path} to be a checkpoint written by train.py, but its content is different.")
    if not is_bounded({key: value for key, value in checkpoint.items() if isinstance(value, Mapping | list | tuple)}):
        raise ValueError(f"Expected {path} to be a checkpoint written by train.py, but it is nested too deeply.")
    check_content(Checkpoint, checkpoint, path, REMEDY)
    named = ("hyper_parameters", "datamodule_hyper_parameters")
    return checkpoint | {key: with_current_names(checkpoint[key]) for key in named if key in checkpoint}


def _check_records(path: str | Path) -> None:
    """Check what ``torch.load`` does not: checksums, and compression, which makes ``mmap`` read wrong numbers."""
    with zipfile.ZipFile(path) as archive:
        if packed := [record.filename for record in archive.infolist() if record.compress_type != zipfile.ZIP_STORED]:
            raise ValueError(f"{packed[0]} is compressed, which torch.save never does")
        if (name := archive.testzip()) is not None:
            raise ValueError(f"wrong checksum of {name}")
