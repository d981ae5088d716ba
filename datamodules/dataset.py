"""Data sets that make whole batches, the views put on top of them, and their loader.

Labels, targets and other tables are looked up for a batch at once. Images leave loader workers as uint8 pixels, a
quarter of the memory, and become float32 in the process that asked for the batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from datamodules.pixels import image_pixels, with_float_images
from datamodules.sample import Batch, Sample
from datamodules.training_views import training_views
from datamodules.transforms.continuity import ContinuityVariant, continuity_view

Index = int | tuple[int, int]  # a position, or (epoch, position) where augmentation depends on the epoch
INLINE = 1 << 16  # bytes; smaller fields go through the workers' pipe, as a shared memory segment each takes longer


def epoch_and_position(index: Index) -> tuple[int, int]:
    """An index as (epoch, position); a bare position is that of epoch 0."""
    return index if isinstance(index, tuple) else (0, index)


class Samples(Sequence[Sample]):
    """The samples of a batch one by one, with float images.

    Args:
        batch: see :meth:`ImageDataset.batch`.
    """

    def __init__(self, batch: Batch) -> None:
        self.batch = batch

    @cached_property
    def _samples(self) -> list[Sample]:
        fields = with_float_images(self.batch)
        return [cast("Sample", dict(zip(fields, row, strict=True))) for row in zip(*fields.values(), strict=True)]

    def __len__(self) -> int:
        return len(self.batch["image"])

    def __getitem__(self, position: Any) -> Any:
        return self._samples[position]


class ImageDataset(Dataset[Sample], ABC):
    """Samples that are asked for by index, or by ``(epoch, index)`` where augmentation depends on the epoch.

    A subclass defines ``batch``, or ``__getitem__`` if it has nothing to gain from several samples at once.

    Raises:
        TypeError: if a subclass overrides ``__getitem__`` where loaders would ask an inherited ``batch``.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__getitem__" in vars(cls) and "batch" not in vars(cls) and cls.batch is not ImageDataset.batch:
            raise TypeError(
                f"Expected {cls.__name__} to override `batch`, of which its base class makes samples and loaders make "
                "batches, but it overrides `__getitem__`."
            )

    @property
    @abstractmethod
    def sample_ids(self) -> list[str]:
        """The ids of all samples, in order."""

    @abstractmethod
    def __len__(self) -> int: ...

    def __getitem__(self, index: Index) -> Sample:
        """One sample."""
        if type(self).batch is ImageDataset.batch:
            raise NotImplementedError(f"Expected {type(self).__name__} to define `batch` or `__getitem__`.")
        sample: Sample = Samples(self.batch([index]))[0]
        return sample

    def __getitems__(self, indices: Sequence[Index]) -> Samples:
        """What loaders ask for; :class:`ImageLoader` takes the batch as a whole."""
        return Samples(self.batch(indices))

    def batch(self, indices: Sequence[Index]) -> Batch:
        """Samples stacked; images may still be ``(B, H, W, 3)`` uint8 pixels."""
        return cast("Batch", default_collate([self[index] for index in indices]))


class Spread(ImageDataset):
    """A few samples of a data set, evenly spread over it.

    Args:
        dataset: the data set.
        limit: number of samples; all if there are fewer.

    Raises:
        ValueError: if ``limit`` is below 1.
    """

    def __init__(self, dataset: ImageDataset, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"Expected argument `limit` to be at least 1 image, but got {limit}.")
        self.dataset = dataset
        count = min(limit, len(dataset))
        self.rows = [index * len(dataset) // count for index in range(count)]

    @property
    def sample_ids(self) -> list[str]:
        """The ids of the chosen samples, in order."""
        names = self.dataset.sample_ids
        return [names[row] for row in self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, indices: Sequence[Index]) -> Batch:
        """Some of the chosen samples."""
        pairs = [epoch_and_position(index) for index in indices]
        return self.dataset.batch([(epoch, self.rows[position]) for epoch, position in pairs])


class View(ImageDataset):
    """The samples of another data set, seen otherwise."""

    dataset: ImageDataset

    @property
    def sample_ids(self) -> list[str]:
        """The ids of all samples, in order."""
        return self.dataset.sample_ids

    def __len__(self) -> int:
        return len(self.dataset)


class SecondView(View):
    """A data set whose samples also carry ``second_view``, the continuity view.

    Args:
        dataset: the data set, without augmentation.
        variant: of the view.
        seed: of the view.
    """

    def __init__(self, dataset: ImageDataset, variant: ContinuityVariant, seed: int) -> None:
        self.dataset, self.variant, self.seed = dataset, variant, seed

    def batch(self, indices: Sequence[Index]) -> Batch:
        """Some samples, whose second view is float."""
        batch = self.dataset.batch(indices)
        images = with_float_images(batch)["image"]
        pairs = zip(images, batch["sample_key"].tolist(), strict=True)
        views = [continuity_view(image, key, self.seed, self.variant) for image, key in pairs]
        return {**batch, "second_view": torch.stack(views)}


class TwoViews(View):
    """A training data set whose samples are two views of one geometry, ``image`` and ``second_view``.

    See :func:`datamodules.training_views.training_views`.

    Args:
        dataset: the data set, at most geometrically augmented.
        seed: of the views.
    """

    def __init__(self, dataset: ImageDataset, seed: int) -> None:
        self.dataset, self.seed = dataset, seed

    def batch(self, indices: Sequence[Index]) -> Batch:
        """Some samples, in two views each."""
        batch = self.dataset.batch(indices)
        images, epochs = batch["image"], [epoch_and_position(index)[0] for index in indices]
        pixels = images if images.dtype == torch.uint8 else image_pixels(images)
        rows = zip(pixels, batch["sample_key"].tolist(), epochs, strict=True)
        views = [training_views(picture, key, self.seed, epoch) for picture, key, epoch in rows]
        first, second = (torch.stack(column) for column in zip(*views, strict=True))
        return {**batch, "image": first, "second_view": second}


class ImageLoader(DataLoader[Sample]):
    """Batches of an :class:`ImageDataset`, with float images whoever made them.

    Args:
        dataset: the data set.
        options: of :class:`torch.utils.data.DataLoader`.
    """

    def __init__(self, dataset: ImageDataset, **options: Any) -> None:
        super().__init__(dataset, **{"collate_fn": _packed, **options})

    def __iter__(self) -> Any:  # Iterator[Batch]; torch names its own iterator here
        return map(_unpacked, super().__iter__())


def _packed(samples: Samples | list[Sample]) -> dict[str, Any]:
    batch = samples.batch if isinstance(samples, Samples) else default_collate(samples)
    return _mapped(batch, Tensor, lambda values: values.numpy() if values.nbytes < INLINE else values)


def _unpacked(packed: dict[str, Any]) -> Batch:
    return cast("Batch", with_float_images(_mapped(packed, np.ndarray, torch.from_numpy)))


def _mapped(fields: Any, kind: type, change: Callable[[Any], Any]) -> dict[str, Any]:
    return {name: change(values) if isinstance(values, kind) else values for name, values in fields.items()}
