"""How a command ends that was told to stop by SIGTERM: between two steps, on all processes of a training at once."""

from __future__ import annotations

from typing import Any

from lightning import Trainer
from lightning.pytorch.trainer.connectors.signal_connector import _SignalConnector
from lightning.pytorch.utilities.exceptions import SIGTERMException

from protometry.command_line.ending import ASKED_TO_STOP


def stop_together(trainer: Trainer) -> None:
    """Let a trainer stop all processes when any of them is told to.

    Lightning's own handler communicates in the middle of a step, which then hangs or aborts.

    Args:
        trainer: before it is used.
    """
    signals = trainer._signal_connector = _StopSignals(trainer)
    trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = signals.agree  # type: ignore[method-assign]


class _StopSignals(_SignalConnector):
    """Handlers that only remember the signal; the processes of a training agree before every batch."""

    def _sigterm_notifier_fn(self, signum: Any, frame: Any) -> None:
        if not ASKED_TO_STOP.is_set() and (launcher := self.trainer.strategy.launcher) is not None:
            launcher.kill(signum)
        ASKED_TO_STOP.set()
        self.received_sigterm = self.trainer.world_size == 1 or self.trainer.state.fn != "fit"

    def agree(self) -> None:
        """Called by the training loop of every process, before each of its batches, if there are several."""
        if self.trainer.strategy.reduce_boolean_decision(ASKED_TO_STOP.is_set(), all=False):
            ASKED_TO_STOP.set()
            raise SIGTERMException
