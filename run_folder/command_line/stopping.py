"""The signals of a command while Lightning runs: for all processes of a trainer at once."""

from __future__ import annotations

from lightning import Trainer
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.pytorch.trainer.connectors.signal_connector import _HandlersCompose, _SignalConnector
from torch import distributed

from protometry.run_folder.command_line.stop_signals import SIGNALS


def stop_together(trainer: Trainer) -> None:
    """Let a signal to one process of a trainer stop all of them, wherever they are, if this is a command.

    Lightning's own handler communicates in the middle of a step, which then hangs or aborts.

    Args:
        trainer: before it is used.
    """
    if not SIGNALS.handled:
        return
    trainer._signal_connector = _SharedSignals(trainer)
    trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None  # type: ignore[method-assign]
    if (launcher := trainer.strategy.launcher) is not None:
        SIGNALS.launched.append(launcher.kill)


class _SharedSignals(_SignalConnector):
    """Leaves the handlers of the command in place, except where SLURM asks Lightning to requeue the job."""

    def register_signal_handlers(self) -> None:
        """Called once the processes are connected."""
        environment = self.trainer._accelerator_connector.cluster_environment
        if isinstance(environment, SLURMEnvironment) and environment.auto_requeue and environment.requeue_signal:
            self._original_handlers = self._get_current_signal_handlers()
            self._register_signal(environment.requeue_signal, _HandlersCompose([self._slurm_sigusr_handler_fn]))
        if distributed.is_initialized():
            SIGNALS.share(distributed.distributed_c10d._get_default_store())
