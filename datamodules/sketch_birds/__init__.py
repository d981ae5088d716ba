"""SketchBirds: procedural vector birds, the embedded data set with known answers for every metric."""

from datamodules.bird_parts import InterventionDataset
from datamodules.sketch_birds.data_module import SketchBirds
from datamodules.sketch_birds.dataset import SketchBirdsDataset

__all__ = ["InterventionDataset", "SketchBirds", "SketchBirdsDataset"]
