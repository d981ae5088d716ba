"""FunnyBirds (Hesse et al. 2023): rendered birds composed of parts, with part maps and interventions."""

from datamodules.funnybirds.data_module import FunnyBirds
from datamodules.funnybirds.dataset import FunnyBirdsDataset

__all__ = ["FunnyBirds", "FunnyBirdsDataset"]
