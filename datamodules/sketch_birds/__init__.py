"""SketchBirds: procedural vector birds, the built-in data set with known answers for every metric."""

from protometry.datamodules.sketch_birds.data_module import SketchBirds
from protometry.datamodules.sketch_birds.dataset import SketchBirdsDataset

__all__ = ["SketchBirds", "SketchBirdsDataset"]
