"""Callbacks that steer or watch a run: phase schedule, projection, evaluation, checkpoints, loggers, pictures."""

from protometry.callbacks.evaluation.evaluation_pass import Evaluation
from protometry.callbacks.evaluation.interpretability import Interpretability
from protometry.callbacks.phases.phase_schedule import PhaseSchedule
from protometry.callbacks.phases.ranks import state_hash
from protometry.callbacks.run.checkpoint import AtomicCheckpointIO, RunCheckpoint
from protometry.callbacks.run.csv_logger import RunCSVLogger
from protometry.callbacks.run.loggers import RunTensorBoardLogger
from protometry.callbacks.run.pictures import ExplanationMedia, PrototypeMedia
from protometry.callbacks.run.progress import PhaseProgressBar
from protometry.callbacks.run.wandb_logger import RunWandbLogger
from protometry.run_folder.checkpoint_file import read_checkpoint

__all__ = [
    "AtomicCheckpointIO",
    "Evaluation",
    "ExplanationMedia",
    "Interpretability",
    "PhaseProgressBar",
    "PhaseSchedule",
    "PrototypeMedia",
    "RunCSVLogger",
    "RunCheckpoint",
    "RunTensorBoardLogger",
    "RunWandbLogger",
    "read_checkpoint",
    "state_hash",
]
