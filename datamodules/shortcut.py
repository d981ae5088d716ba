"""A planted shortcut: a checkered patch in the corner of training images of one class, and of no other image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from protometry.datamodules.dataset import ImageDataset, Index, with_float_images
from protometry.datamodules.sample import Batch, sample_key
from protometry.datamodules.views import Chosen

SQUARES = 4  # of the checkered patch, along a side


@dataclass(frozen=True)
class Stamp:
    """A checkered black and white patch in the lower right corner of images.

    Args:
        label: index of the class.
        share: of the training images of the class that carry the patch, chosen by the hashes of their ids; a smaller
            share chooses from what a larger one does.
        size: side of the patch as a share of the shorter side of the image.

    Raises:
        ValueError: if a value is of another kind or out of range.

    Example:
        >>> Stamp(label=0, size=0.5).on(torch.zeros(1, 1, 8, 8))[0, 0, 4:, 4:].tolist()[:2]
        [[0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 1.0, 0.0]]
    """

    label: int
    share: float = 1.0
    size: float = 0.12

    def __post_init__(self) -> None:
        if not isinstance(self.label, int) or self.label < 0:
            raise ValueError(f"Expected `label` of argument `stamp` to be the index of a class, but got {self.label}.")
        for name in ("share", "size"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 < value <= 1:
                raise ValueError(f"Expected `{name}` of argument `stamp` to be above 0 and at most 1, but got {value}.")

    @classmethod
    def of(cls, settings: Mapping[str, Any], image_size: tuple[int, int]) -> Self:
        """A stamp by the values of its arguments.

        Raises:
            ValueError: if an argument is unknown or out of range, or the patch too small for images of that size.
        """
        names = [field.name for field in fields(cls)]
        if "label" not in settings or not settings.keys() <= set(names):
            raise ValueError(f"Expected argument `stamp` to have `label` and some of {names[1:]}, but got {settings}.")
        stamp = cls(**settings)
        if (side := stamp.side(image_size)) < SQUARES:
            raise ValueError(
                f"Expected `size` of argument `stamp` to give a patch of at least {SQUARES} pixels a side, but "
                f"{stamp.size} of {min(image_size)} pixels is {side}."
            )
        return stamp

    def side(self, image_size: Sequence[int]) -> int:
        """Of the patch in pixels, on images ``(H, W)``."""
        return round(self.size * min(image_size))

    def on(self, images: Tensor) -> Tensor:
        """Images ``(..., H, W)`` float with the patch."""
        side = self.side(images.shape[-2:])
        square = torch.arange(side, device=images.device) * SQUARES // side
        return self.filled(images, (square[:, None] + square) % 2)

    def filled(self, images: Tensor, content: Tensor) -> Tensor:
        """Images ``(..., H, W)`` with something else in the place of the patch."""
        side, filled = self.side(images.shape[-2:]), images.clone()
        filled[..., -side:, -side:] = content
        return filled


class Stamped(Chosen):
    """Training images, some with a stamp.

    It is the last thing that happens to an image, in the size that the model sees: augmentation neither cuts nor moves
    it. Whatever is annotated stays as it is.

    Attributes:
        stamped: keys of the images that carry it.

    Raises:
        ValueError: if no image would.
    """

    def __init__(self, dataset: ImageDataset, stamp: Stamp) -> None:
        self.dataset, self.rows, self.stamp = dataset, range(len(dataset)), stamp
        names = dataset.sample_ids
        keys = sorted(sample_key(names[row]) for row in np.flatnonzero(dataset.labels == stamp.label))
        self.stamped = torch.tensor(keys[: round(stamp.share * len(keys))], dtype=torch.int64)
        if not len(self.stamped):
            raise ValueError(
                f"Expected argument `stamp` to choose training images, but class {stamp.label} has {len(keys)}, and a "
                f"share of {stamp.share} of them is none."
            )

    def batch(self, indices: Sequence[Index]) -> Batch:
        """Some samples, whose images are float."""
        batch = with_float_images(super().batch(indices))
        images, carry = batch["image"], torch.isin(batch["sample_key"], self.stamped)
        return {**batch, "image": torch.where(carry[:, None, None, None], self.stamp.on(images), images)}
