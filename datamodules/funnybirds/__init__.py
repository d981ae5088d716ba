"""FunnyBirds (Hesse et al. 2023): rendered birds put together from parts, with part maps and interventions."""

from datamodules.funnybirds.data_module import FunnyBirds

__all__ = ["FunnyBirds"]
