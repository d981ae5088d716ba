"""The hardware of an evaluation, in a module that imports nothing: a command line reads the fields first."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Hardware:
    """Hardware of an evaluation.

    Args:
        accelerator: as for ``lightning.Trainer``.
        devices: number of devices, their indices, or "auto".
        num_nodes: number of machines.
        enable_progress_bar: whether to show the progress, by a bar or by lines.
    """

    accelerator: str = "auto"
    devices: int | list[int] | str = 1
    num_nodes: int = 1
    enable_progress_bar: bool = True
