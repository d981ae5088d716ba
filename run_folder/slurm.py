"""Jobs that a cluster queues again: the same command continues a run from its newest state, which ends an epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning import Trainer
from lightning.pytorch.trainer.connectors.checkpoint_connector import _CheckpointConnector

from protometry.run_folder.free_folder import may_be_queued
from protometry.run_folder.layout import LAST, QUEUED


class _NamedCheckpoints(_CheckpointConnector):
    """Loads what it is given; under SLURM, Lightning's own would evaluate the state of a queued job in its place."""

    _hpc_resume_path = None


class RequeuedTrainer(Trainer):
    """Lightning's trainer, but neither saves nor finds states in the middle of an epoch when SLURM queues a job again.

    Training would continue from those with other batches; ``last.ckpt`` is there already.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._checkpoint_connector = _NamedCheckpoints(self)

    def save_checkpoint(self, filepath: Any, *args: Any, **options: Any) -> None:
        """Save a state; for a job that is queued again, a link to that of the last epoch."""
        if not Path(filepath).match(QUEUED):
            super().save_checkpoint(filepath, *args, **options)
        elif self.is_global_zero:
            mark_as_queued(Path(self.default_root_dir))


def mark_as_queued(folder: Path) -> None:
    """Let the same command continue a run: a link to its last checkpoint says so.

    Args:
        folder: the run folder; before its first checkpoint, nothing happens, and the run starts again.
    """
    if (folder / LAST).is_file() and not any(folder.glob(QUEUED)):
        (folder / QUEUED.replace("*", "1")).symlink_to(LAST)


def states_of_queued(folder: Path) -> list[Path]:
    """The checkpoints of a run that was queued again, as the cluster says or a link; none of other runs."""
    if not may_be_queued(folder):
        return []
    return [path for path in (*folder.glob(QUEUED), folder / LAST) if path.is_file() and not path.is_symlink()]
