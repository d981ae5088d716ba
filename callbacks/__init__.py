"""What watches or steers a run: schedule, projection, evaluation, checkpoints, media."""

from callbacks.evaluation.interpretability import Evaluation, Interpretability
from callbacks.phases.schedule import PhaseSchedule, state_hash
from callbacks.run.checkpoint import AtomicCheckpointIO, RunCheckpoint
from callbacks.run.loggers import RunCSVLogger, RunWandbLogger
from callbacks.run.media import PrototypeMedia
from callbacks.run.progress import PhaseProgressBar
from lightning_modules.checkpoint import read_checkpoint

__all__ = [
    "AtomicCheckpointIO",
    "Evaluation",
    "Interpretability",
    "PhaseProgressBar",
    "PhaseSchedule",
    "PrototypeMedia",
    "RunCSVLogger",
    "RunCheckpoint",
    "RunWandbLogger",
    "read_checkpoint",
    "state_hash",
]
