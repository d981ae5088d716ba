"""The images of SketchBirds in the order of an export, and the writers of its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from protometry.datamodules.sketch_birds import SketchBirds, SketchBirdsDataset
from protometry.datamodules.splits import Split

# training images as the projection split has them: the same pictures with every annotation
SPLITS: dict[str, Split] = {"train": "projection", "val": "val", "test": "test"}


@dataclass(frozen=True)
class Source:
    """One image of SketchBirds.

    Args:
        dataset: the split it belongs to.
        index: its number there.
    """

    dataset: SketchBirdsDataset
    index: int

    @property
    def label(self) -> int:
        """Class index."""
        return self.dataset.label(self.index)

    @property
    def stem(self) -> str:
        """File name without extension, such as ``train_00012``."""
        return self.dataset.sample_id(self.index).replace("/", "_")


def all_images(birds: SketchBirds) -> list[Source]:
    """Every image: train, validation, then test."""
    datasets = [birds.dataset(split) for split in SPLITS.values()]
    return [Source(dataset, index) for dataset in datasets for index in range(len(dataset))]


def padded_names(birds: SketchBirds) -> list[str]:
    """Class names such as ``bird 07``, whose alphabetical order is the order of the classes."""
    width = len(str(len(birds.class_names) - 1))
    return [f"bird {number:0{width}d}" for number in range(len(birds.class_names))]


def save_jpeg(image: NDArray[np.uint8], path: Path) -> None:
    """Write an ``(H, W, 3)`` uint8 picture as JPEG of quality 95 with full colour resolution.

    Folders on the way are made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(path, quality=95, subsampling=0)


def write_lines(path: Path, lines: list[str]) -> None:
    """Write a text table, one row per line; folders on the way are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
