"""Data sets under one sample contract, each as a plain torch data set and as a Lightning data module."""

import os

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # else importing albumentations asks a package index

from datamodules.awa2 import AwA2, AwA2Dataset
from datamodules.base import ImageDataModule
from datamodules.cars196 import Cars196, Cars196Dataset
from datamodules.cub200 import Cub200, Cub200Dataset
from datamodules.dataset import ImageDataset
from datamodules.funnybirds import FunnyBirds, FunnyBirdsDataset
from datamodules.image_folder import ImageFolder, ImageFolderDataset
from datamodules.load import load_datamodule
from datamodules.nico import Nico, NicoDataset
from datamodules.sketch_birds import SketchBirds, SketchBirdsDataset

__all__ = [
    "AwA2",
    "AwA2Dataset",
    "Cars196",
    "Cars196Dataset",
    "Cub200",
    "Cub200Dataset",
    "FunnyBirds",
    "FunnyBirdsDataset",
    "ImageDataModule",
    "ImageDataset",
    "ImageFolder",
    "ImageFolderDataset",
    "Nico",
    "NicoDataset",
    "SketchBirds",
    "SketchBirdsDataset",
    "load_datamodule",
]
