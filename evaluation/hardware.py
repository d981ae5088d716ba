"""The hardware of an evaluation, and the trainer that runs on it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lightning import Trainer

from callbacks.evaluation.interpretability import Interpretability
from callbacks.run.progress import PhaseProgressBar
from run_folder.command_line import trainer_settings


@dataclass(frozen=True)
class Hardware:
    """Hardware of an evaluation.

    Args:
        accelerator: as for ``lightning.Trainer``.
        devices: number of devices, their indices, or "auto".
        num_nodes: number of machines.
    """

    accelerator: str = "auto"
    devices: int | list[int] | str = 1
    num_nodes: int = 1

    @classmethod
    def of(cls, trainer: Trainer) -> Hardware:
        """The hardware that a trainer runs on.

        Args:
            trainer: set up.
        """
        on_cpu = trainer.strategy.root_device.type == "cpu"
        devices = trainer.num_devices if on_cpu else trainer.device_ids
        return cls("cpu" if on_cpu else "auto", devices, trainer.num_nodes)

    def trainer(self, engine: Interpretability, folder: Path) -> Trainer:
        """A trainer that tests a model and logs nothing.

        Args:
            engine: the only callback besides the progress bar.
            folder: of the run.
        """
        with trainer_settings():
            return Trainer(
                accelerator=self.accelerator,
                devices=self.devices,
                num_nodes=self.num_nodes,
                logger=False,
                callbacks=[engine, PhaseProgressBar()],
                default_root_dir=folder,
                enable_checkpointing=False,
                enable_model_summary=False,
                use_distributed_sampler=False,
            )
