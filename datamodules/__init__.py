"""What is seen: data modules that fill one sample contract."""

import os

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # else importing albumentations asks a package index

from datamodules.base import ImageDataModule, ImageDataset
from datamodules.cub200 import Cub200
from datamodules.sketch_birds import SketchBirds

__all__ = ["Cub200", "ImageDataModule", "ImageDataset", "SketchBirds"]
