"""NICO (He et al. 2021): animals in about ten contexts each, with a shift of background between training and test."""

from protometry.datamodules.nico.data_module import Nico
from protometry.datamodules.nico.dataset import NicoDataset

__all__ = ["Nico", "NicoDataset"]
