"""NICO (He et al. 2021), Non-IID: animals in about ten contexts each, with other backgrounds in training and test."""

from protometry.datamodules.nico.data_module import Nico
from protometry.datamodules.nico.dataset import NicoDataset

__all__ = ["Nico", "NicoDataset"]
