"""The base of all data modules: loaders with exact evaluation sampling and a training order that can be resumed.

A subclass fills four things: ``num_classes``, ``dataset(split)``, ``capabilities(split)`` and, where folds exist,
``split_record``. Everything random in training is a function of (seed, epoch, sample id), so that neither a resumed
run nor the number of workers changes anything.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, cast

from lightning import LightningDataModule

from protometry.datamodules.arguments import check_no_file
from protometry.datamodules.dataset import CPU, EpochSampler, ExactSampler, ImageDataset, ImageLoader
from protometry.datamodules.matching import Matched
from protometry.datamodules.photos.problems import first_few
from protometry.datamodules.sample import Capabilities, ClassTables
from protometry.datamodules.shortcut import Stamp, Stamped
from protometry.datamodules.splits import SPLITS, Split
from protometry.datamodules.transforms.continuity import ContinuityVariant
from protometry.datamodules.views import Augmentations, SecondView, Stratified, TwoViews
from protometry.run_folder.command_line.processes import gathered
from protometry.run_folder.settings import Effect

MOST_WORKERS = 1024  # processes; more bring a machine down
LARGEST_SIDE = 4096  # pixels; one image then takes 200 MB, before any layer


@dataclass(frozen=True)
class Loading:
    """What the loaders of a data module hand out.

    Args:
        split: the split of ``test_dataloader``.
        limit: number of images of that split, drawn by class (:class:`.Stratified`); all if None.
        continuity: variant of the continuity view that validation and test samples carry as ``second_view``; without it
            if None.
        continuity_seed: seed of that view.
        classes: for other data than a model was trained on, the logit of each class of that split, -1 for a class whose
            images are left out (:class:`.Matched`).
        two_views: whether training samples are two colour augmentations of one geometry, ``image`` and ``second_view``.

    Raises:
        ValueError: if ``limit`` is below 1.
    """

    split: Split = "test"
    limit: int | None = None
    continuity: ContinuityVariant | None = None
    continuity_seed: int = 0
    classes: tuple[int, ...] | None = None
    two_views: bool = False

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"Expected argument `limit` to be at least 1 image, but got {self.limit}.")


class ImageDataModule(LightningDataModule, ABC):
    """Loaders over the splits of one data set.

    Args:
        image_size: side of the square images in pixels, or ``(H, W)``.
        batch_size: images per process and training step.
        eval_batch_size: images per process and evaluation step; ``batch_size`` if None.
        num_workers: loader processes.
        seed: seed of order and augmentation (linked to ``seed_everything``).
        fixed_augmentations: number of augmentations of each training image, which epochs show in turn; a new one in
            every epoch if None.
        cache: folder for photos as the model sees them and for the features of a frozen backbone, which are then made
            once; None keeps neither.
        stamp: a shortcut that is planted in training images, as the arguments of :class:`.Stamp`, such as
            ``{label: 3}``; none by default.

    Raises:
        ValueError: if a number is too small or too large, ``image_size`` has not one or two, or ``cache`` is a file.
    """

    official_images: int | None = None  # of the whole data set, where it is known

    def __init__(  # noqa: PLR0913 - a command line sets these one by one
        self,
        image_size: int | tuple[int, int] = 224,
        batch_size: Annotated[int, Effect.TRAINING] = 64,
        eval_batch_size: Annotated[int | None, Effect.NONE] = None,
        num_workers: Annotated[int, Effect.NONE] = 0,
        seed: Annotated[int, Effect.TRAINING] = 0,
        fixed_augmentations: Annotated[int | None, Effect.TRAINING] = None,
        cache: Annotated[str | None, Effect.NONE] = None,
        stamp: Annotated[dict[str, Any] | None, Effect.TRAINING] = None,
    ) -> None:
        super().__init__()
        self.save_hyperparameters(logger=False)
        least_values = (
            ("batch_size", batch_size, 1),
            ("eval_batch_size", 1 if eval_batch_size is None else eval_batch_size, 1),
            ("num_workers", num_workers, 0),
            ("seed", seed, 0),
            ("fixed_augmentations", 1 if fixed_augmentations is None else fixed_augmentations, 1),
        )
        for name, value, least in least_values:
            if value is None or value < least:  # a config may say null
                raise ValueError(f"Expected argument `{name}` to be at least {least}, but got {value}.")
        if num_workers > MOST_WORKERS:
            raise ValueError(f"Expected argument `num_workers` to be at most {MOST_WORKERS}, but got {num_workers}.")
        sides = (image_size, image_size) if isinstance(image_size, int) else tuple(image_size)
        if len(sides) != 2 or not 1 <= min(sides) <= max(sides) <= LARGEST_SIDE:
            raise ValueError(
                f"Expected argument `image_size` to be one or two positive numbers of pixels, at most {LARGEST_SIDE}, "
                f"but got {image_size}."
            )
        if cache is not None:
            check_no_file("data.cache", cache)
        self.image_size = (sides[0], sides[1])
        self.batch_size = batch_size
        self.eval_batch_size = eval_batch_size or batch_size
        self.num_workers = num_workers
        self.seed = seed
        self.fixed_augmentations = fixed_augmentations
        self.cache = cache
        self.stamp = None if stamp is None else Stamp.of(stamp, self.image_size)
        self.loading = Loading()

    def configure_loaders(self, **changes: Any) -> None:
        """Change what loaders hand out that are made from now on; what is not named stays.

        Raises:
            TypeError: if there is no such field.
            ValueError: if a field is out of range.

        Example:
            >>> from protometry.datamodules import SketchBirds
            >>> birds = SketchBirds("tiny")
            >>> birds.configure_loaders(split="val", limit=4)
            >>> len(birds.test_dataloader().dataset)
            4
        """
        self.loading = replace(self.loading, **changes)

    @property
    def is_read(self) -> bool:
        """Whether sizes and classes are known without reading files."""
        return True

    def __repr__(self) -> str:
        """The class, where the data are, sizes and classes once they are read, and the size of images."""
        root = f"root={str(self.root)!r}, " if hasattr(self, "root") else ""
        head = f"{type(self).__name__}({root}image_size={self.image_size})"
        if not self.is_read:
            return f"{head}: not set up; `setup()` reads the data"
        sizes: dict[Split, int] = {}
        for split in SPLITS:
            with suppress(ValueError):  # of data without it
                sizes |= {split: len(self.dataset(split))} if split != "projection" else {}
        there = ", ".join(f"{split} {size:,}" for split, size in sizes.items() if size)
        return f"{head}: {there} images; {self.num_classes} classes: {first_few(self.class_names)}"

    __str__ = __repr__  # Lightning's asks all loaders

    @classmethod
    def from_datasets(cls, *args: Any, **options: Any) -> Any:
        """Lightning's, whose loaders have no ids and no exact sampling, is refused.

        Raises:
            TypeError: with the name of ours.
        """
        raise TypeError(f"Expected `WrappedDatasets.from_datasets`, but got `{cls.__name__}.from_datasets`.")

    @property
    @abstractmethod
    def num_classes(self) -> int:
        """Number of logits a model must produce."""

    @property
    @abstractmethod
    def class_names(self) -> list[str]:
        """The K class names."""

    @abstractmethod
    def dataset(self, split: Split) -> ImageDataset:
        """The samples of one split, which accept an index or ``(epoch, index)``.

        Args:
            split: "train" is augmented, in geometry alone where loaders make two views of it; "projection" is the same
                images through the evaluation transform.
        """

    @abstractmethod
    def capabilities(self, split: Split) -> Capabilities:
        """Which optional fields the split's samples have."""

    @property
    def dataset_name(self) -> str:
        """The data set in results: the file or package of its data module, such as ``cub200``; else its class."""
        ours, kind = "protometry.datamodules.", type(self)
        return kind.__module__.removeprefix(ours).split(".")[0] if kind.__module__.startswith(ours) else kind.__name__

    @property
    def display_name(self) -> str:
        """The data in messages: the name of their class."""
        return type(self).__name__

    def file_of(self, sample_id: str) -> Path | None:
        """The file of an image, None where images are not in files of their own."""
        return None

    def excerpt(self, split: Split, limit: int) -> ImageDataset:
        """A few samples of a split, drawn by class: always the same ones (:class:`.Stratified`).

        Raises:
            ValueError: if ``limit`` is below 1.
        """
        return Stratified(self.shown(split), limit)

    def split_record(self) -> dict[str, Any] | None:
        """The split as plain data for ``split.json``, or None where the data set defines its own."""
        return None

    @property
    def fingerprint(self) -> str:
        """Of the test images: 16 hexadecimal digits, which depend on the names of classes and on ``contents``."""
        return self.fingerprint_of("test")

    def fingerprint_of(self, *splits: Split) -> str:
        """The same of other images."""
        content = json.dumps([self.class_names, *(sorted(self.dataset(split).contents) for split in splits)])
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def check_processes(self, *splits: Split) -> None:
        """Compare the images and classes of all processes of a run, which may be on several machines.

        Args:
            splits: those that are there are compared.

        Raises:
            ValueError: on all processes, with the fingerprints of their data by rank.
        """
        there = [split for split in splits if split != "val" or self.has_validation]
        fingerprints = gathered(self.fingerprint_of(*there))
        if len(set(fingerprints)) > 1:
            raise ValueError(
                f"Expected the same classes and images ({', '.join(there)}) on all processes, but the fingerprints of "
                f"{self.display_name}, by rank, are {', '.join(fingerprints)}. Give all machines the same files."
            )

    @property
    def tables(self) -> ClassTables:
        """What is known of parts, concepts and classes."""
        return ClassTables()

    @property
    def num_concepts(self) -> int:
        """Number of concepts L, 0 without any."""
        return len(self.tables.concept_names)

    @property
    def fixed_training_images(self) -> bool:
        """Whether every epoch shows the same training images; False unless a subclass knows better."""
        return False

    @property
    def has_validation(self) -> bool:
        """Whether there is a validation split."""
        return True

    def train_dataloader(self) -> ImageLoader:
        """Shuffled, augmented training batches."""
        return self._loader("train")

    def projection_dataloader(self) -> ImageLoader:
        """The training images through the evaluation transform, each exactly once over all processes."""
        return self._loader("projection")

    def val_dataloader(self) -> ImageLoader | list[ImageLoader]:
        """Validation batches, each sample exactly once over all processes."""
        return self._loader("val") if self.has_validation else []

    def test_dataloader(self) -> ImageLoader:
        """Batches of the test split, or as :class:`Loading` says, each sample exactly once over all processes."""
        return self._loader(self.loading.split, self.loading.limit)

    def left_out_dataloader(self) -> ImageLoader:
        """Batches of the images that a limit leaves out of :meth:`test_dataloader`, each once over all processes."""
        return self._loader(self.loading.split, self.loading.limit, left_out=True)

    def predict_dataloader(self) -> ImageLoader:
        """As :meth:`test_dataloader`."""
        return self.test_dataloader()

    def repeated_dataloaders(self) -> list[ImageLoader]:
        """Loaders of the images that training sees again and again, each once over all processes.

        They are those of validation, of projection and, unless every epoch augments them in another way, of training.
        """
        validation = [self._loader("val")] if self.has_validation else []
        augmentations = self.fixed_augmentations or int(self.fixed_training_images)
        training = [self._loader("train", augmentations=augmentations)] if augmentations else []
        return [*validation, self._loader("projection"), *training]

    def shown(self, split: Split, limit: int | None = None, left_out: bool = False) -> ImageDataset:
        """The samples that loaders of a split hand out: of classes that the model knows; with a limit, drawn by class.

        A smaller limit chooses from what a larger one does. Training images carry the planted shortcut.

        Args:
            split: of the data.
            limit: number of samples, None for all.
            left_out: whether to hand out what the limit leaves out instead.

        Raises:
            ValueError: if the shortcut cannot be planted.
        """
        dataset: ImageDataset = self.dataset(split)
        if self.stamp is not None and split in ("train", "projection"):
            if self.capabilities(split).multi_label is True:
                raise ValueError("Expected argument `stamp` to be null for images of several labels each.")
            dataset = Stamped(dataset, self.stamp)
        if self.loading.classes is not None:
            dataset = Matched(dataset, self.loading.classes, self.capabilities(split).multi_label is True)
        if limit is None and not left_out:
            return dataset
        return Stratified(dataset, len(dataset) if limit is None else limit, left_out)

    def _loader(
        self, split: Split, limit: int | None = None, augmentations: int = 0, left_out: bool = False
    ) -> ImageLoader:
        dataset = self.shown(split, limit, left_out)
        if self.loading.continuity is not None and split in ("val", "test"):
            dataset = SecondView(dataset, self.loading.continuity, self.loading.continuity_seed)
        if self.loading.two_views and split == "train":
            dataset = TwoViews(dataset, self.seed)
        if augmentations:
            dataset = Augmentations(dataset, augmentations)
        rank, world_size, device = 0, 1, CPU
        if self.trainer:
            rank, world_size = self.trainer.global_rank, self.trainer.world_size
            device = self.trainer.strategy.root_device
        training = split == "train" and not augmentations
        sampler: Any
        if training:
            sampler = EpochSampler(dataset, self._epoch, self.seed, rank, world_size, self.fixed_augmentations)
        elif left_out:  # no image may be left for some processes, or for any
            sampler = range(rank, len(dataset), world_size)
        else:
            sampler = ExactSampler(dataset, rank, world_size)
        return ImageLoader(
            dataset,
            device,
            batch_size=self.batch_size if training else self.eval_batch_size,
            sampler=sampler,
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0 and (training or split == "val"),
        )

    def _epoch(self) -> int:
        """The epoch under way; ``trainer.current_epoch`` is one too small while a resumed run builds its loaders."""
        if self.trainer is None:
            return 0
        progress = cast(Any, self.trainer.fit_loop.epoch_progress.current)
        return int(progress.processed)
