"""Data sets under one sample contract, each as a plain torch data set and as a Lightning data module."""

import os

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # else importing albumentations asks a package index

from protometry.datamodules.awa2 import AwA2, AwA2Dataset
from protometry.datamodules.base import ImageDataModule
from protometry.datamodules.cars196 import Cars196, Cars196Dataset
from protometry.datamodules.cub200 import Cub200, Cub200Dataset
from protometry.datamodules.dataset import ImageDataset
from protometry.datamodules.funnybirds import FunnyBirds, FunnyBirdsDataset
from protometry.datamodules.image_folder import ImageFolder, ImageFolderDataset
from protometry.datamodules.load import load_datamodule
from protometry.datamodules.nico import Nico, NicoDataset
from protometry.datamodules.sketch_birds import SketchBirds, SketchBirdsDataset
from protometry.datamodules.wrapped import WrappedDataset, WrappedDatasets

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
    "WrappedDataset",
    "WrappedDatasets",
    "load_datamodule",
]
