"""Views of a data set: some of its samples, a second view for continuity, two colour augmentations for training."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import albumentations as A
import torch
from torch import Tensor

from datamodules.dataset import ImageDataset, Index, epoch_and_position, with_float_images
from datamodules.plot import image_pixels
from datamodules.sample import Batch
from datamodules.transforms.continuity import ContinuityVariant, continuity_view
from datamodules.transforms.photo import transform_seed


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
        seed: of the views, see :func:`training_views`.
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


def training_views(pixels: Tensor, sample_key: int, seed: int, epoch: int) -> tuple[Tensor, Tensor]:
    """Two draws of a strong colour augmentation on the same pixels, so that the cells of the two views correspond.

    Source: Nauta et al. 2023 (PIP-Net), whose views share resize, flip and crop and differ in colour. Deviations:
    colour jitter of 0.75-1.25 with a hue of 0.05, posterisation to 2-8 bits per channel and a 3 x 3 mean blur with
    probability 0.5 for their TrivialAugment, and no second random crop, which would move cells.

    Args:
        pixels: ``(H, W, 3)`` uint8 RGB, after the geometric augmentation.
        sample_key: see :func:`datamodules.sample.sample_key`.
        seed: of the run.
        epoch: number of the epoch.

    Returns:
        Two ``(H, W, 3)`` uint8 RGB, a pure function of the arguments.

    Example:
        >>> pixels = torch.arange(192, dtype=torch.uint8).view(8, 8, 3)
        >>> first, second = training_views(pixels, sample_key=7, seed=0, epoch=1)
        >>> torch.equal(first, second), torch.equal(first, training_views(pixels, 7, 0, 1)[0])
        (False, True)
    """
    first, second = (_view(pixels, transform_seed(seed, epoch, sample_key, view)) for view in range(2))
    return first, second


@functools.cache
def _colour_augmentation() -> A.Compose:
    factors = (0.75, 1.25)
    steps = [
        A.ColorJitter(brightness=factors, contrast=factors, saturation=factors, hue=(-0.05, 0.05), p=1.0),
        A.Posterize(num_bits=(2, 8), p=1.0),
        A.Blur(blur_limit=(3, 3), p=0.5),
    ]
    return A.Compose(steps, strict=True)


def _view(pixels: Tensor, seed: int) -> Tensor:
    _colour_augmentation().set_random_seed(seed)
    return torch.from_numpy(_colour_augmentation()(image=pixels.numpy())["image"])
