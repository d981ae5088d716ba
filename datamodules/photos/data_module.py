"""The base of data modules of photos: checks before a run, splits, transforms and loaders around one data set."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn
from numpy.typing import NDArray
from torch import Tensor

from protometry.datamodules import splits
from protometry.datamodules.base import ImageDataModule
from protometry.datamodules.photos.alike import differing, easily_confused, repeated
from protometry.datamodules.photos.dataset import PhotoDataset, PhotoTable
from protometry.datamodules.photos.download import Archive, is_free
from protometry.datamodules.photos.download import download as download_archives
from protometry.datamodules.photos.kept_photos import KeptPhotos
from protometry.datamodules.photos.problems import DataError, Problems, first_few
from protometry.datamodules.photos.verify import Verify, verify_images
from protometry.datamodules.sample import Capabilities, ClassTables, nfc
from protometry.datamodules.splits import Split
from protometry.datamodules.transforms.crop_and_augment import (
    Augmentation,
    Crop,
    PhotoTransform,
    PhotoVariant,
    geometric_part,
)
from protometry.datamodules.transforms.placement import GeometryPreset
from protometry.run_folder.command_line.user_path import user_path
from protometry.run_folder.settings import Effect


@cache
def _say(text: str) -> None:
    """Log once, although data modules are copied."""
    rank_zero_info(text)


class PhotoDataModule(ImageDataModule, ABC):
    """Photos in files, checked before a run, split, transformed and loaded.

    A subclass reads its data set in ``photo_dataset``, and divides it in ``make_splits`` if by a rule of its own.

    Args:
        root: the official folder or the one that holds it; only read.
        fold: validation fold; None trains without validation.
        split_file: a ``split.json`` to use instead of the data set's own way of dividing.
        exclude: sample ids to leave out.
        geometry: how a photo becomes the frame, see :class:`.PhotoTransform`.
        variant: ``quanproto`` resizes and warps photos as the published code of Schlinge et al. 2025 did.
        augmentation: of training images; where they come in two views, the colours of the views replace its own.
        verify: how images are checked beforehand, see :func:`protometry.datamodules.photos.verify.verify_images`.
        loading: the other arguments of :class:`protometry.datamodules.base.ImageDataModule`.

    Raises:
        ValueError: if an argument is out of range.
    """

    title: str  # the data set in messages
    remedy: ClassVar[str]  # how to get it
    archives: Sequence[Archive] = ()  # what a download fetches
    promised_classes: int | None = None  # logits of the official data set, for a model built before a download
    promised_concepts: int | None = None  # the same for concepts, where their number is known
    scheme: str = "cv70"
    crop: Crop = "none"
    download: bool = False
    class_weights: Tensor

    def __init__(  # noqa: PLR0913 - one flat list, so that every knob is one flag
        self,
        root: Annotated[str, Effect.NONE],
        fold: int | None = 0,
        split_file: str | None = None,
        exclude: Sequence[str] = (),
        geometry: GeometryPreset = "stretch",
        variant: PhotoVariant = "paper",
        augmentation: Annotated[Augmentation, Effect.TRAINING] = "geometric_photometric",
        verify: Annotated[Verify, Effect.NONE] = "decode",
        **loading: Any,
    ) -> None:
        super().__init__(**loading)
        self.root = root
        self.fold = fold
        self.split_file = split_file
        self.exclude = [nfc(name) for name in exclude]
        self.geometry: GeometryPreset = geometry
        self.variant: PhotoVariant = variant
        self.augmentation: Augmentation = augmentation
        self.verify: Verify = verify
        self.transform(augmentation)  # refuses unknown names
        self._photos: PhotoDataset | None = None
        self._promised = False
        self._parts: dict[str, list[int]] = {}

    @abstractmethod
    def photo_dataset(self) -> PhotoDataset:
        """All photos as an evaluation sees them; tables are read and compared with each other, no image is opened.

        Raises:
            FileNotFoundError: if the data or a table is missing.
            ValueError: if tables are malformed or disagree; all findings are in one message.
        """

    def make_splits(self, population: splits.Population, rows: NDArray[np.int64]) -> splits.Splits:
        """Divide the photos by ``scheme``: ``cv70``, or ``official`` where the data set has an official test part.

        Raises:
            ValueError: if that is impossible with these photos.
        """
        if self.scheme == "cv70":
            return splits.cv70(population)
        if self.photos.table.is_test is None:
            raise ValueError(
                f"Expected argument `scheme` to be 'cv70', as {self.title} has no official split, but got "
                f"{self.scheme!r}."
            )
        return splits.official(population, self.photos.table.is_test[rows].tolist())

    def check_download(self, folder: Path) -> None:
        """Raise unless an unpacked download is what was promised; for archives without a checksum."""

    def transform(self, augmentation: Augmentation = "none") -> PhotoTransform:
        """From a photo to the model's frame; the transform of training if there is an augmentation."""
        return PhotoTransform(self.image_size, self.geometry, self.crop, self.variant, augmentation)

    @property
    def photos(self) -> PhotoDataset:
        """All photos of the data set, read once; not in ``prepare_data``, which runs in one process only."""
        if self._photos is None:
            self._photos = self.photo_dataset()
            if self.cache is not None and self._decoded_as_usual(self._photos):
                self._photos.kept = self._kept_photos(user_path(self.cache), self._photos)
        return self._photos

    def _decoded_as_usual(self, photos: PhotoDataset) -> bool:
        usual = type(photos).decoded is PhotoDataset.decoded and type(photos.transform) is PhotoTransform
        if not usual:
            _say(f"No photos are kept: {type(photos).__name__} decodes or transforms them in its own way.")
        return usual

    def _kept_photos(self, cache: Path, photos: PhotoDataset) -> KeptPhotos:
        kept, count = KeptPhotos(cache, photos.transform, photos.upright), len(photos.table.files)
        _say(
            f"Photos are kept in {kept.folder}, which holds {len(kept):,}. The {count:,} of {photos.table.folder} take "
            f"up to {count * kept.bytes_per_photo / 1e6:,.0f} MB."
        )
        return kept

    def file_of(self, sample_id: str) -> Path | None:
        """The file of a photo."""
        files = {file.sample_id: file.path for file in self.photos.table.files}
        return files[sample_id].absolute() if sample_id in files else None

    @property
    def tables(self) -> ClassTables:
        """What is known of parts, concepts and classes."""
        self.setup()
        return self.photos.tables

    @property
    def num_classes(self) -> int:
        """Number of logits: of the data, or the official one before a download."""
        if self.download and is_free(Path(self.root)):
            assert self.promised_classes is not None
            self._promised = True
            return self.promised_classes
        names = self.class_names
        if len(names) < 2:
            raise ValueError(
                f"Expected {self.photos.table.folder} to hold at least 2 classes, but got only "
                f"{', '.join(names) or 'none'}. Add photos of another class, or pass another `root`."
            )
        return len(names)

    @property
    def num_concepts(self) -> int:
        """Number of concepts: of the data, or the official one before a download."""
        if self.download and is_free(Path(self.root)):
            return self.promised_concepts or 0
        return len(self.photos.tables.concept_names)  # without a split, which some data cannot have

    @property
    def class_names(self) -> list[str]:
        """The K names of the logits."""
        return self.photos.class_names

    @property
    def has_validation(self) -> bool:
        """Whether the fold has a validation part."""
        self.setup()
        return bool(self._parts["val"])

    def prepare_data(self) -> None:
        """Download if asked to, then check every table and every image; photos that are there twice are warned of.

        Raises:
            FileNotFoundError: if the data or a part of it is missing.
            ValueError: if tables are malformed or disagree, or images cannot be decoded.
        """
        if self.download and is_free(Path(self.root)):
            download_archives(self.archives, Path(self.root), self.check_download)
        try:
            photos = self._photos or self.photo_dataset()
        except DataError as error:  # together with what is wrong with photos
            there = [file for file in error.problems.photos() if file.sample_id not in self.exclude]
            verify_images(there, self.verify, self.num_workers, error.problems)
            error.problems.raise_any()
        what = f"{self.title} in " if photos.table.folder.name != self.title else ""
        problems = Problems(f"{what}{photos.table.folder}", self.remedy)
        excluded = set(self._excluded(photos.table))
        rows = [row for row, file in enumerate(photos.table.files) if file.sample_id not in excluded]
        files = photos.part(rows).files_to_verify(problems)
        equal = verify_images(files, self.verify, self.num_workers, problems)
        problems.raise_any()
        if names := easily_confused(photos.table.class_names):
            rank_zero_warn(
                f"Classes of {photos.table.folder} differ only in case, spaces, leading zeros or letters that are not "
                f"seen: {first_few(names, '; ')}."
            )
        if equal:
            self._warn_of_shared(equal)

    def _warn_of_shared(self, equal: list[list[str]]) -> None:
        twin = copy.copy(self)  # to divide the photos without a state of this one
        twin.setup()
        files = twin.photos.table.files
        parts = {files[row].sample_id: part for part, rows in twin._parts.items() for row in rows}
        names = twin.photos.table.class_names
        one = dict.fromkeys(parts, "")  # several labels are no contradiction
        classes = {file.sample_id: names[label] for file, label in zip(files, twin.photos.table.labels, strict=True)}
        classes = one if twin.photos.multi_label else classes
        for said, photos in (
            ("are in two parts ({} of them), so results are not on new photos only", differing(equal, parts)),
            ("are in two classes ({} of them), one of which is wrong", differing(equal, classes)),
            ("are there more than once ({} of them) and count as often", repeated(equal, parts, classes)),
        ):
            if photos:
                rank_zero_warn(
                    f"Photos of {twin.photos.table.folder} {said.format(len(photos))}: {first_few(photos, '; ')}. List "
                    "one of each in `exclude`."
                )

    def setup(self, stage: str | None = None) -> None:
        """Read the tables and make the split; a second call does nothing.

        Raises:
            FileNotFoundError: if the data is missing.
            ValueError: if the split does not fit the data, or an argument needs something that the data lacks.
        """
        if self._parts:
            return
        table = self.photos.table
        excluded = self._excluded(table)
        names, left_out = [file.sample_id for file in table.files], set(excluded)
        rows = np.array([row for row, name in enumerate(names) if name not in left_out], dtype=np.int64)
        ids, (strata, of_strata) = [names[row] for row in rows], self.photos.strata
        population = splits.Population(table.dataset, ids, strata[rows].tolist(), of_strata, excluded)
        self._splits = self._given_splits(population) or self.make_splits(population, rows)
        chosen = self._splits.indices(population, self.fold)
        parts = {part: rows[positions].tolist() for part, positions in chosen.items()}
        labels = [] if self.photos.multi_label else table.labels[parts["train"]].tolist()
        self.class_weights = splits.class_weights(labels, len(self.class_names))
        self.photos.learn(np.array(parts["train"], dtype=np.int64))
        self._refuse_broken_promise()
        self._parts = parts

    @property
    def is_read(self) -> bool:
        """Whether the tables are read and divided."""
        return bool(self._parts)

    def _refuse_broken_promise(self) -> None:
        kept = {
            "classes": (self.promised_classes, len(self.class_names)),
            "concepts": (self.promised_concepts, len(self.photos.tables.concept_names)),
        }
        for name, (promised, actual) in kept.items():
            if self._promised and promised not in (None, actual):
                raise ValueError(
                    f"Expected {self.photos.table.folder} to have the {promised} {name} the model was built for, but "
                    f"it has {actual}. Build the data module again."
                )

    def _excluded(self, table: PhotoTable) -> list[str]:
        """What is left out: ``exclude``, and what the split file records of the photos that are still there."""
        recorded: list[str] = []
        if self.split_file:
            given = splits.read_splits(self.split_file)
            splits.require_same_data_set(given, table.dataset)
            recorded = [nfc(name) for name in given.exclude]
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
        folder = self.photos.table.folder
        return splits.require_same_content(splits.read_splits(self.split_file), population, self.split_file, folder)

    @property
    def fixed_training_images(self) -> bool:
        """Whether nothing is augmented, or always in one way."""
        return (self.augmentation == "none" or self.fixed_augmentations == 1) and not self.loading.two_views

    def dataset(self, split: Split) -> PhotoDataset:
        """The samples of one split; "projection" is the training images through the evaluation transform."""
        self.setup()
        rows = self._parts["train" if split == "projection" else split]
        if not rows and split != "val":
            raise ValueError(
                f"Expected {self.title} to have images in the {split} split, but `scheme: {self.scheme}` leaves none "
                "there."
            )
        if split != "train":
            return self.photos.part(rows)
        augmentation = geometric_part(self.augmentation) if self.loading.two_views else self.augmentation
        return self.photos.training_part(rows, self.transform(augmentation), self.seed)

    def capabilities(self, split: Split) -> Capabilities:
        """Which optional fields the samples of the split carry."""
        self.setup()
        return self.photos.capabilities(split)

    def split_record(self) -> dict[str, Any]:
        """The content of ``split.json``."""
        self.setup()
        return self._splits.record()
