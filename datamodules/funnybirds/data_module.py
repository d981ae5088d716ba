"""The data module of FunnyBirds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from protometry.datamodules.funnybirds import tables
from protometry.datamodules.funnybirds.dataset import FunnyBirdsDataset
from protometry.datamodules.funnybirds.files import check_files
from protometry.datamodules.photos.data_module import PhotoDataModule
from protometry.datamodules.photos.download import Archive
from protometry.datamodules.photos.problems import Problems
from protometry.run_folder.settings import Effect

ARCHIVES = (Archive(tables.URL, None, 1_600_000_000),)


class FunnyBirds(PhotoDataModule):
    """FunnyBirds (Hesse et al. 2023), or a subset of its classes in the same layout, see :class:`.FunnyBirdsDataset`.

    The official split is the only one; a hash chooses a fifth of each class's training images as the validation part of
    fold 0.

    Args:
        root: the folder ``FunnyBirds`` or the one that holds it; only read.
        image_size: side of the square frame in pixels, or ``(H, W)``; 256 keeps the pixels of the files.
        download: fetch the archive if ``root`` is missing or empty.
        photos: the other arguments of :class:`.PhotoDataModule`.

    Raises:
        ValueError: if an argument is out of range.
    """

    title = "FunnyBirds"
    remedy = tables.REMEDY
    archives = ARCHIVES
    official_images = sum(tables.OFFICIAL_SIZES.values())
    scheme = "official"
    promised_classes = tables.OFFICIAL_CLASSES

    def __init__(
        self,
        root: str,
        image_size: int | tuple[int, int] = 256,
        download: Annotated[bool, Effect.NONE] = False,
        **photos: Any,
    ) -> None:
        super().__init__(root, image_size=image_size, **photos)
        self.download = download

    def photo_dataset(self) -> FunnyBirdsDataset:
        """Read the JSON tables and compare them with each other."""
        return FunnyBirdsDataset(self.root, self.transform())

    def check_download(self, folder: Path) -> None:
        """Raise unless a folder holds the official numbers of classes and images, and every file they imply."""
        classes = tables.read_classes(str(folder))
        scenes = tables.read_scenes(classes)
        problems = Problems(f"the download of {tables.URL}", "Try again, or download it by hand.")
        sizes = [(tables.CLASSES, len(classes.table), tables.OFFICIAL_CLASSES)]
        sizes += [
            (tables.table_name(name), len(part.labels), tables.OFFICIAL_SIZES[name]) for name, part in scenes.items()
        ]
        for name, actual, expected in sizes:
            if actual != expected:
                problems.wrong(f"{name}: expected {expected} entries, but got {actual}")
        for part in scenes.values():
            check_files(classes.folder, part, (), problems)
        problems.raise_any()
