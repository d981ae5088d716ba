"""Wrappers of data sets: some samples, a second view for continuity, two views or some augmentations for training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from protometry.datamodules.dataset import ImageDataset, Index, epoch_and_position, with_float_images
from protometry.datamodules.plot import image_pixels
from protometry.datamodules.sample import Batch, sample_key
from protometry.datamodules.transforms.continuity import ContinuityVariant, continuity_view
from protometry.datamodules.transforms.training_views import training_views


class Chosen(ImageDataset):
    """The samples of another data set that ``rows`` name, perhaps all; a subclass may present them differently."""

    dataset: ImageDataset
    rows: Sequence[int]

    @property
    def sample_ids(self) -> list[str]:
        """The ids of the chosen samples, in order."""
        names = self.dataset.sample_ids
        return [names[row] for row in self.rows]

    @property
    def contents(self) -> list[str]:
        """What tells the chosen samples from others, in order."""
        every = self.dataset.contents
        return [every[row] for row in self.rows]

    @property
    def labels(self) -> NDArray[np.int64]:
        """The classes of the chosen samples, in order."""
        return self.dataset.labels[np.array(self.rows, dtype=np.int64)]

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, indices: Sequence[Index]) -> Batch:
        """Some of the chosen samples."""
        pairs = [epoch_and_position(index) for index in indices]
        return self.dataset.batch([(epoch, self.rows[position]) for epoch, position in pairs])


class Stratified(Chosen):
    """A few samples of a data set, drawn by class.

    Every class gives one image before any gives a second, and beyond that each gives its share; within a class, the
    hashes of sample ids decide. So the choice depends on ids and classes only, not on the order of the data, and a
    smaller limit chooses from what a larger one does.

    Args:
        dataset: to choose from.
        limit: number of samples.
        left_out: whether to take all other samples instead.

    Raises:
        ValueError: if ``limit`` is below 1.
    """

    def __init__(self, dataset: ImageDataset, limit: int, left_out: bool = False) -> None:
        if limit < 1:
            raise ValueError(f"Expected argument `limit` to be at least 1 image, but got {limit}.")
        self.dataset = dataset
        keys = np.array([sample_key(name) for name in dataset.sample_ids], dtype=np.int64)
        drawn = stratified_rows(dataset.labels, keys, limit)
        self.rows = sorted(set(range(len(dataset))) - set(drawn)) if left_out else drawn


def stratified_rows(labels: NDArray[np.int64], keys: NDArray[np.int64], limit: int) -> list[int]:
    """Rows of a few samples of every class in ascending order, see :class:`Stratified`; ``keys`` are hashes.

    Example:
        >>> labels, keys = np.array([0, 1, 0, 1, 0, 0]), np.array([5, 1, 3, 2, 4, 0])
        >>> stratified_rows(labels, keys, 2), stratified_rows(labels, keys, 3)
        ([1, 5], [1, 2, 5])
    """
    order = np.lexsort((keys, labels))
    classes, first, counts = np.unique(labels[order], return_index=True, return_counts=True)
    index = np.searchsorted(classes, labels[order])
    rank = np.arange(len(order)) - first[index]
    fraction = np.where(rank == 0, 0.0, (rank + 0.5) / counts[index])  # of the samples of the class
    chosen = order[np.lexsort((keys[order], fraction))[:limit]]
    rows: list[int] = np.sort(chosen).tolist()
    return rows


class SecondView(Chosen):
    """A data set, not augmented, whose samples also carry ``second_view``, see :func:`.continuity_view`."""

    def __init__(self, dataset: ImageDataset, variant: ContinuityVariant, seed: int) -> None:
        self.dataset, self.rows = dataset, range(len(dataset))
        self.variant, self.seed = variant, seed

    def batch(self, indices: Sequence[Index]) -> Batch:
        """Some samples, whose second view is float."""
        batch = self.dataset.batch(indices)
        images = with_float_images(batch)["image"]
        pairs = zip(images, batch["sample_key"].tolist(), strict=True)
        views = [continuity_view(image, key, self.seed, self.variant) for image, key in pairs]
        return {**batch, "second_view": torch.stack(views)}


class Augmentations(Chosen):
    """A training data set in which the first ``count`` augmentations of each image, as in these epochs, are samples."""

    def __init__(self, dataset: ImageDataset, count: int) -> None:
        self.dataset, self.rows = dataset, [*range(len(dataset))] * count

    def batch(self, indices: Sequence[Index]) -> Batch:
        """Some augmentations."""
        positions = [epoch_and_position(index)[1] for index in indices]
        return self.dataset.batch([divmod(position, len(self.dataset)) for position in positions])


class TwoViews(Chosen):
    """A training data set in two colour augmentations of one geometry, ``image`` and ``second_view``."""

    def __init__(self, dataset: ImageDataset, seed: int) -> None:
        self.dataset, self.rows = dataset, range(len(dataset))
        self.seed = seed

    def batch(self, indices: Sequence[Index]) -> Batch:
        """Some samples, in two views each."""
        batch = self.dataset.batch(indices)
        images, epochs = batch["image"], [epoch_and_position(index)[0] for index in indices]
        pixels = images if images.dtype == torch.uint8 else image_pixels(images)
        rows = zip(pixels, batch["sample_key"].tolist(), epochs, strict=True)
        views = [training_views(picture, key, self.seed, epoch) for picture, key, epoch in rows]
        first, second = (torch.stack(column) for column in zip(*views, strict=True))
        return {**batch, "image": first, "second_view": second}
