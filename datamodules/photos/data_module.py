"""What every data set of photos in files shares: checks, splits, transforms and loaders around one table.

A data set is a subclass of :class:`PhotoDataModule` that reads its own tables or folders into a :class:`PhotoTable`.
Whatever else it has goes into hooks: points and label maps into ``mark``, further fields into ``annotate``, targets of
another kind into ``add_targets``, class-level tables into ``set_class_tables``, a rule of its own into ``make_splits``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from datamodules import splits
from datamodules.base import ImageDataModule, Split
from datamodules.photos.dataset import PhotoDataset, PhotoTable
from datamodules.photos.download import Archive, is_free
from datamodules.photos.download import download as download_archives
from datamodules.photos.files import ImageFile, Problems, Verify, verify_images
from datamodules.sample import Batch, Capabilities
from datamodules.split_file import read_splits, require_same_content, require_same_data_set
from datamodules.transforms.photo import (
    Augmentation,
    Border,
    Crop,
    Photo,
    PhotoTransform,
    geometric_part,
)
from datamodules.transforms.placement import GeometryPreset, ResizeFilter

__all__ = ["AUGMENTED", "PhotoDataModule", "PhotoDataset", "PhotoTable"]

AUGMENTED = "training images are augmented and carry no annotations"


class PhotoDataModule(ImageDataModule, ABC):
    """Photos in files, checked before a run, split, transformed and loaded.

    Args:
        root: the official folder or the one that holds it; only read.
        scheme: ``cv70`` (70/30, four folds; Schlinge et al. 2025) or the ``official`` train and test lists.
        fold: validation fold; None trains without validation. ``official`` has fold 0 only.
        val_fraction: ``official``: share of each class's training images held out for validation; with 0, fold 0
            trains on all of them.
        split_seed: seed of the split.
        split_file: a ``split.json`` to use instead of ``scheme``, ``val_fraction`` and ``split_seed``.
        exclude: sample ids to leave out.
        crop: ``box`` cuts photos to the bounding box.
        geometry: how a photo becomes the frame, see :class:`datamodules.transforms.photo.PhotoTransform`.
        resize_filter: ``area`` or ``linear``.
        augmentation: of training images; where they come in two views, its photometry gives way to that of the views.
        border: what warped training images show beyond the photo, ``replicate`` its edge or ``wrap`` it round, as the
            published code of Schlinge et al. 2025 did.
        verify: how images are checked beforehand, see :func:`datamodules.photos.files.verify_images`.
        download: fetch the archives if ``root`` is missing or empty.
        base: ``image_size``, ``batch_size``, ``eval_batch_size``, ``num_workers`` and ``seed`` of
            :class:`datamodules.base.ImageDataModule`.

    Raises:
        ValueError: if an argument is out of range, or ``download`` is asked of a data set that cannot be downloaded.
    """

    title: ClassVar[str]  # the data set in messages
    remedy: ClassVar[str]  # how to get it
    class_weights: Tensor

    def __init__(  # noqa: PLR0913 - one flat list, so that every knob is one flag
        self,
        root: str,
        scheme: splits.Scheme = "cv70",
        fold: int | None = 0,
        val_fraction: float = 0.2,
        split_seed: int = 42,
        split_file: str | None = None,
        exclude: Sequence[str] = (),
        crop: Crop = "none",
        geometry: GeometryPreset = "stretch",
        resize_filter: ResizeFilter = "area",
        augmentation: Augmentation = "geometric_photometric",
        border: Border = "replicate",
        verify: Verify = "decode",
        download: bool = False,
        **base: Any,
    ) -> None:
        super().__init__(**base)
        if download and not self.archives:
            raise ValueError(
                f"Expected argument `download` to be false because {self.title} has no public archive, but got true. "
                f"{self.remedy}"
            )
        if not 0 <= split_seed < 2**32:
            raise ValueError(f"Expected argument `split_seed` to be from 0 to 2**32 - 1, but got {split_seed}.")
        self.root = root
        self.scheme: str = scheme
        self.fold = fold
        self.val_fraction = val_fraction
        self.split_seed = split_seed
        self.split_file = split_file
        self.exclude = list(exclude)
        self.verify = verify
        self.download = download
        self._evaluation = PhotoTransform(self.image_size, geometry, crop, resize_filter)
        self._training, self._shared = (
            PhotoTransform(self.image_size, geometry, crop, resize_filter, steps, border)
            for steps in (augmentation, geometric_part(augmentation))
        )
        self._promised: int | None = None
        self._table: PhotoTable | None = None
        self._parts: dict[str, list[int]] = {}

    @abstractmethod
    def table(self) -> PhotoTable:
        """Read the tables or folders and compare them with each other, without opening an image.

        ``prepare_data`` calls it to find problems; ``setup`` keeps the result, which hooks find as ``self.photos``.

        Raises:
            FileNotFoundError: if the data or a table is missing.
            ValueError: if tables are malformed or disagree; all findings are in one message.
        """

    @property
    def archives(self) -> Sequence[Archive]:
        """What a download fetches; empty where nothing can be downloaded."""
        return ()

    def promised_classes(self) -> int:
        """Number of logits of the official data set, which a model is built for before a download."""
        raise NotImplementedError(f"{type(self).__name__} has archives, so it must say its number of classes.")

    def set_class_tables(self, train_rows: NDArray[np.int64]) -> None:
        """Set what is known per class (concepts, attributes); called at the end of ``setup``.

        Args:
            train_rows: indices of the training images into ``self.photos``.
        """

    def check_download(self, folder: Path) -> None:
        """Raise unless an unpacked download is what was promised; for archives without a checksum."""

    def files_to_verify(self, table: PhotoTable, excluded: set[str], problems: Problems) -> list[ImageFile]:
        """The files that have to be images, before a run; what is found wrong on the way goes to ``problems``."""
        return [file for file in table.files if file.sample_id not in excluded]

    def mark(self, row: int, photo: Photo) -> Photo:
        """Put what is annotated on an evaluation photo (points, label map) on it, in its own pixels."""
        return photo

    def add_targets(self, batch: Batch, rows: NDArray[np.int64]) -> None:
        """Add targets other than ``label``, for training and evaluation.

        Args:
            batch: has its images, ids and labels already.
            rows: ``(B,)`` indices into ``self.photos``.
        """

    def annotate(self, batch: Batch, rows: NDArray[np.int64]) -> None:
        """Add further fields to evaluation samples.

        Args:
            batch: has its images, ids, targets, boxes, masks, label maps and points already.
            rows: ``(B,)`` indices into ``self.photos``.
        """

    def make_splits(self, population: splits.Population, rows: NDArray[np.int64]) -> splits.Splits:
        """Divide the photos by ``scheme``.

        Args:
            population: ids and strata of all photos that are not excluded.
            rows: their indices into ``self.photos``.

        Raises:
            ValueError: if the scheme is unknown or impossible with these photos.
        """
        is_test = self.photos.is_test
        if self.scheme == "cv70":
            return splits.cv70(population, self.split_seed)
        if self.scheme == "official" and is_test is not None:
            return splits.official(population, is_test[rows].tolist(), self.val_fraction, self.split_seed)
        known = "'cv70' or 'official'" if is_test is not None else f"'cv70', as {self.title} has no official split"
        raise ValueError(f"Expected argument `scheme` to be {known}, but got {self.scheme!r}.")

    @property
    def photos(self) -> PhotoTable:
        """The table, once ``setup`` has read it."""
        assert self._table is not None
        return self._table

    @property
    def num_classes(self) -> int:
        """Number of logits: of the data, or the official one before a download."""
        if self.download and is_free(Path(self.root)):
            self._promised = self.promised_classes()
            return self._promised
        return len(self.class_names)

    @property
    def class_names(self) -> list[str]:
        """The K class names."""
        return (self._table or self.table()).class_names

    @property
    def has_validation(self) -> bool:
        """Whether the fold has a validation part."""
        self.setup()
        return bool(self._parts["val"])

    def prepare_data(self) -> None:
        """Download if asked to, then check every table and every image.

        Raises:
            FileNotFoundError: if the data or a part of it is missing.
            ValueError: if tables are malformed or disagree, images cannot be decoded, or there are no boxes to crop to.
        """
        if self.download and is_free(Path(self.root)):
            download_archives(self.archives, Path(self.root), self.check_download)
        table = self.table()
        if self._evaluation.crop == "box" and table.boxes is None:
            raise ValueError(f"Expected argument `crop` to be 'none' because {self.title} has no boxes, but got 'box'.")
        problems = Problems(f"{self.title} in {table.folder}", self.remedy)
        files = self.files_to_verify(table, set(self._excluded(table)), problems)
        verify_images(files, self.verify, self.num_workers, problems)
        problems.raise_any()

    def setup(self, stage: str | None = None) -> None:
        """Read the tables and make the split; a second call does nothing.

        Args:
            stage: ignored, all stages need the same tables.

        Raises:
            FileNotFoundError: if the data is missing.
            ValueError: if the split does not fit the data, or something is asked for that the data does not have.
        """
        if self._parts:
            return
        table = self._table = self.table()
        if self._promised not in (None, self.num_classes):
            raise ValueError(
                f"Expected {table.folder} to have the {self._promised} classes the model was built for, but it has "
                f"{self.num_classes}. Build the data module again."
            )
        excluded = self._excluded(table)
        names, left_out = [file.sample_id for file in table.files], set(excluded)
        rows = np.array([row for row, name in enumerate(names) if name not in left_out], dtype=np.int64)
        strata: list[int] = table.labels[rows].tolist()
        ids = [names[row] for row in rows]
        population = splits.Population(table.dataset, ids, strata, table.class_names, excluded)
        self._splits = self._given_splits(population) or self.make_splits(population, rows)
        chosen = self._splits.indices(population, self.fold)
        parts = {part: rows[positions].tolist() for part, positions in chosen.items()}
        self.class_weights = splits.class_weights(table.labels[parts["train"]].tolist(), len(table.class_names))
        self.set_class_tables(np.array(parts["train"], dtype=np.int64))
        self._parts = parts

    def _excluded(self, table: PhotoTable) -> list[str]:
        """What is left out: ``exclude``, and what the split file records of the photos that are still there."""
        recorded: list[str] = []
        if self.split_file:
            given = read_splits(self.split_file)
            require_same_data_set(given, table.dataset)
            recorded = given.exclude
        known = Counter(file.sample_id for file in table.files)
        twice = [name for name, count in known.items() if count > 1]
        if twice:
            raise ValueError(
                f"Expected {table.folder} to name every photo once, but {len(twice)} are named several times; the "
                f"first is {twice[0]!r}."
            )
        unknown = [name for name in self.exclude if name not in known and name not in recorded]
        if unknown:
            raise ValueError(
                f"Expected argument `exclude` to hold image ids of {table.folder}, but got {len(unknown)} others; the "
                f"first is {unknown[0]!r}."
            )
        return [name for name in dict.fromkeys([*self.exclude, *recorded]) if name in known]

    def _given_splits(self, population: splits.Population) -> splits.Splits | None:
        if not self.split_file:
            return None
        given = read_splits(self.split_file)
        require_same_content(given, population)
        return given

    def dataset(self, split: Split) -> PhotoDataset:
        """The samples of one split; "projection" is the training images through the evaluation transform."""
        self.setup()
        training = split == "train"
        augmented = self._shared if self.loading.two_views else self._training
        rows = self._parts["train" if split == "projection" else split]
        if not rows and split != "val":
            raise ValueError(
                f"Expected {self.title} to have images in the {split} split, but `scheme: {self.scheme}` leaves none "
                "there."
            )
        return self.make_dataset(rows, augmented if training else self._evaluation, training)

    def make_dataset(self, rows: list[int], transform: PhotoTransform, training: bool) -> PhotoDataset:
        """The samples of some rows of ``self.photos``."""
        return PhotoDataset(self, self.photos, rows, transform, training)

    def capabilities(self, split: Split) -> Capabilities:
        """Which optional fields the samples of the split carry; subclasses ``replace`` what they know better."""
        self.setup()
        fields = {
            "object_mask": any(file.mask is not None for file in self.photos.files),
            "bounding_box": self.photos.boxes is not None,
        }
        there: bool | str = True if split != "train" else AUGMENTED
        flags = {name: there for name, present in fields.items() if present}
        return Capabilities(**flags, **({"context": True} if self.photos.contexts is not None else {}))

    def split_record(self) -> dict[str, Any]:
        """The content of ``split.json``."""
        self.setup()
        return self._splits.record()
