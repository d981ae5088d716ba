"""Callbacks that steer or watch a run: phase schedule, projection, evaluation, checkpoints, loggers, pictures."""

from callbacks.evaluation.evaluation_pass import Evaluation
from callbacks.evaluation.interpretability import Interpretability
from callbacks.phases.ranks import state_hash
from callbacks.phases.schedule import PhaseSchedule
from callbacks.run.checkpoint import AtomicCheckpointIO, RunCheckpoint
from callbacks.run.csv_logger import RunCSVLogger
from callbacks.run.explanation_media import ExplanationMedia
from callbacks.run.media import PrototypeMedia
from callbacks.run.progress import PhaseProgressBar
from callbacks.run.tensorboard_logger import RunTensorBoardLogger
from callbacks.run.wandb_logger import RunWandbLogger
from run_folder.checkpoint_file import read_checkpoint

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
