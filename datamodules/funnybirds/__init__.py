"""FunnyBirds (Hesse et al. 2023): rendered birds composed of parts, with part maps and interventions."""

from protometry.datamodules.funnybirds.data_module import FunnyBirds
from protometry.datamodules.funnybirds.dataset import FunnyBirdsDataset

__all__ = ["FunnyBirds", "FunnyBirdsDataset"]
