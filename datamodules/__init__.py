"""What is seen: data modules that fill one sample contract."""

import os

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # else importing albumentations asks a package index

from datamodules.awa2 import AwA2
from datamodules.base import ImageDataModule
from datamodules.cars196 import Cars196
from datamodules.cub200 import Cub200
from datamodules.dataset import ImageDataset
from datamodules.funnybirds import FunnyBirds
from datamodules.image_folder import ImageFolder
from datamodules.nico import Nico
from datamodules.sketch_birds import SketchBirds

__all__ = [
    "AwA2",
    "Cars196",
    "Cub200",
    "FunnyBirds",
    "ImageDataModule",
    "ImageDataset",
    "ImageFolder",
    "Nico",
    "SketchBirds",
]
