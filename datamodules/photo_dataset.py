"""Photos in files as samples: the table of what is known about them, and the data set over some of its rows."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from datamodules.base import ImageDataset
from datamodules.image_files import ImageFile, decode_image
from datamodules.sample import Sample, sample_key
from datamodules.transforms import Photo, PhotoTransform, clipped_box, image_tensor, transform_seed

if TYPE_CHECKING:
    from datamodules.photos import PhotoDataModule


@dataclass(frozen=True)
class PhotoTable:
    """What tables or folders say about n images, in canonical order (official number, or sorted path).

    Args:
        dataset: name of the data set in ``split.json``.
        folder: the official folder.
        class_names: names of the strata, which usually are the classes.
        files: sample id, path and mask of each image.
        labels: ``(n,)`` int64 stratum of each image.
        is_test: ``(n,)`` bool official split, or None where there is none.
        boxes: ``(n, 4)`` inclusive pixels (x0, y0, x1, y1), which may exceed the photo, or None.
        contexts: ``(n,)`` int64 background context, or None.
    """

    dataset: str
    folder: Path
    class_names: list[str]
    files: list[ImageFile]
    labels: NDArray[np.int64]
    is_test: NDArray[np.bool_] | None = None
    boxes: NDArray[np.float64] | None = None
    contexts: NDArray[np.int64] | None = None


class PhotoDataset(ImageDataset):
    """Some photos of a table through one transform.

    Args:
        source: the data module whose hooks complete a sample.
        table: all photos.
        rows: the photos of this data set, as indices into the table.
        transform: what makes the model's frame.
        training: whether samples carry image, targets and ids only.
    """

    def __init__(
        self, source: PhotoDataModule, table: PhotoTable, rows: list[int], transform: PhotoTransform, training: bool
    ) -> None:
        self.source = copy.copy(source)
        self.source.trainer = None  # else workers that are spawned would get a copy of the trainer and its model
        self.table, self.rows, self.transform, self.training = table, rows, transform, training
        self._labels = torch.from_numpy(table.labels)

    @property
    def sample_ids(self) -> list[str]:
        """Ids of the photos, in order."""
        return [self.table.files[row].sample_id for row in self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int | tuple[int, int]) -> Sample:
        """One sample; ``(epoch, index)`` draws that epoch's augmentation, a bare index that of epoch 0."""
        epoch, position = index if isinstance(index, tuple) else (0, index)
        row = self.rows[position]
        key = sample_key(self.table.files[row].sample_id)
        photo = self._photo(row)
        if self.training:
            photo = self.transform(
                photo, transform_seed(self.source.seed, epoch, key) if self.transform.random else None
            )
        else:
            photo = self._evaluated(row, self.source.mark(row, self._with_mask(row, photo)))
        sample = Sample(
            image=image_tensor(photo.image),
            label=self._labels[row],
            sample_id=self.table.files[row].sample_id,
            sample_key=torch.tensor(key),
        )
        if self.table.contexts is not None:
            sample["context"] = torch.tensor(int(self.table.contexts[row]))
        self.source.add_targets(sample, row)
        if not self.training:
            _add_annotations(sample, photo)
            self.source.annotate(sample, row, photo)
        return sample

    def _photo(self, row: int) -> Photo:
        image = decode_image(self.table.files[row].path)
        if self.table.boxes is None:
            return Photo(image)
        x0, y0, x1, y1 = self.table.boxes[row].tolist()
        if x0 >= image.shape[1] or y0 >= image.shape[0] or x1 < 0 or y1 < 0:
            raise ValueError(
                f"Expected the box of {self.table.files[row].path} to lie on its {image.shape[1]}x{image.shape[0]} "
                f"pixels (width x height), but got corners {x0:g} {y0:g} {x1:g} {y1:g}. Use the photos that the tables "
                "are about."
            )
        return Photo(image, box=clipped_box(self.table.boxes[row], image.shape))

    def _evaluated(self, row: int, photo: Photo) -> Photo:
        """The marked photo in the frame; the error says of which file it is."""
        try:
            return self.transform(photo)
        except ValueError as error:
            raise ValueError(f"{self.table.files[row].path}: {error}") from error

    def _with_mask(self, row: int, photo: Photo) -> Photo:
        mask_file = self.table.files[row].mask
        if mask_file is None:
            return photo
        mask = decode_image(mask_file, "L")
        return replace(photo, object_mask=mask > mask.max() / 2)  # grey steps say how many annotators agree


def _add_annotations(sample: Sample, photo: Photo) -> None:
    if photo.box is not None:
        sample["bounding_box"] = torch.from_numpy(photo.box)
    if photo.object_mask is not None:
        sample["object_mask"] = torch.from_numpy(photo.object_mask)
    if photo.label_map is not None:
        sample["label_map"] = torch.from_numpy(photo.label_map)
    if photo.points is not None and photo.visible is not None:
        sample["part_points"] = torch.from_numpy(photo.points)
        sample["part_visible"] = torch.from_numpy(photo.visible)
