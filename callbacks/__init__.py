"""What watches or steers a run: schedule, projection, evaluation, checkpoints, media."""

from callbacks.checkpoint import AtomicCheckpointIO, RunCheckpoint, read_checkpoint
from callbacks.interpretability import Evaluation, Interpretability
from callbacks.loggers import RunCSVLogger, RunWandbLogger
from callbacks.media import PrototypeMedia
from callbacks.phase_schedule import PhaseSchedule, state_hash
from callbacks.progress import PhaseProgressBar

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
