"""Data sets seen otherwise: some of the samples, with a second view for continuity, in two views for training."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from datamodules.dataset import ImageDataset, Index, epoch_and_position, with_float_images
from datamodules.plot import image_pixels
from datamodules.sample import Batch
from datamodules.transforms.continuity import ContinuityVariant, continuity_view
from datamodules.transforms.training_views import training_views


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
        variant: of the view, see :func:`datamodules.transforms.continuity.continuity_view`.
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
    """A training data set whose samples are two colour augmentations of one geometry, ``image`` and ``second_view``.

    Args:
        dataset: the data set, at most geometrically augmented.
        seed: of the views, see :func:`.training_views`.
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
