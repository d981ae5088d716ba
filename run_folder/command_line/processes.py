"""Communication between the processes of one run, and their common end; a single process does not communicate."""

from __future__ import annotations

import signal
from typing import Any, TypeVar

from lightning import Callback, Trainer
from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher
from torch import Tensor, distributed

Share = TypeVar("Share")


class EndTogether(Callback):
    """Ends the processes that a trainer has launched when it fails; they may wait for it where no signal is handled."""

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """Called by the process that fails, but not when it was asked to stop, which all of them are."""
        launcher = trainer.strategy.launcher
        if isinstance(exception, Exception) and isinstance(launcher, _SubprocessScriptLauncher):
            launcher.kill(signal.SIGKILL)


def gathered(own: Share) -> list[Share]:
    """The shares of all processes, by rank.

    Args:
        own: the share of this process, which can be pickled.
    """
    if not distributed.is_initialized():
        return [own]
    shares: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(shares, own)
    return shares


def add_up(*own: Tensor) -> None:
    """Add to tensors, in place, the same tensors of all other processes.

    Args:
        own: of equal shapes on all processes, in the same order.
    """
    if distributed.is_initialized():
        for tensor in own:
            distributed.all_reduce(tensor)
