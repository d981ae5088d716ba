"""The trainer of evaluations and predictions."""

from __future__ import annotations

from pathlib import Path

from lightning import Callback, Trainer

from protometry.callbacks.run.progress import PhaseProgressBar
from protometry.evaluation.hardware import Hardware
from protometry.run_folder.command_line.ending import trainer_settings
from protometry.run_folder.command_line.processes import EndTogether
from protometry.run_folder.command_line.stopping import stop_together
from protometry.run_folder.slurm import RequeuedTrainer


def quiet_trainer(hardware: Hardware, folder: Path, *callbacks: Callback) -> Trainer:
    """A trainer that tests a model or predicts with it, and logs nothing."""
    with trainer_settings():
        trainer = RequeuedTrainer(
            accelerator=hardware.accelerator,
            devices=hardware.devices,
            num_nodes=hardware.num_nodes,
            logger=False,
            callbacks=[EndTogether(), *callbacks, *([PhaseProgressBar()] if hardware.enable_progress_bar else [])],
            enable_progress_bar=hardware.enable_progress_bar,
            default_root_dir=folder,
            enable_checkpointing=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
        )
    stop_together(trainer)
    return trainer
