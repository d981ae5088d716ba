"""The images of CUB-200-2011 as samples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamodules.base import ImageDataset
from datamodules.cub200_tables import CubTables
from datamodules.image_files import ImageFile, decode_image
from datamodules.sample import Sample, sample_key
from datamodules.transforms import Photo, PhotoTransform, image_tensor, pixel_box, transform_seed

MASKS = "segmentations"


@dataclass(frozen=True)
class CubImages(ImageDataset):
    """Some images of CUB-200-2011 through one transform.

    Args:
        tables: annotations of all images.
        files: image and mask files of all images.
        rows: the images of this data set, as indices into the tables.
        transform: what makes the model's frame; its augmentation decides what a sample carries.
        training: whether samples carry only image, label and ids.
        seed: seed of the augmentation.
        concepts: ``(K, L)`` bool by class, ``(n, L)`` bool by image, or None.
        certainty: ``(n, L)`` uint8, only with concepts by image.
    """

    tables: CubTables
    files: list[ImageFile]
    rows: list[int]
    transform: PhotoTransform
    training: bool
    seed: int
    concepts: Tensor | None = None
    certainty: Tensor | None = None

    @property
    def sample_ids(self) -> list[str]:
        """Official image ids."""
        return [self.files[row].sample_id for row in self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int | tuple[int, int]) -> Sample:
        """One sample; ``(epoch, index)`` draws that epoch's augmentation, a bare index that of epoch 0."""
        epoch, position = index if isinstance(index, tuple) else (0, index)
        row = self.rows[position]
        name = self.tables.ids[row]
        key = sample_key(name)
        image = decode_image(self.files[row].path)
        box = pixel_box(self.tables.boxes[row], image.shape)
        if self.training:
            photo = self.transform(Photo(image, box=box), transform_seed(self.seed, epoch, key))
        else:
            photo = self.transform(self._annotated(row, image, box))
        sample = Sample(
            image=image_tensor(photo.image),
            label=torch.tensor(int(self.tables.labels[row])),
            sample_id=name,
            sample_key=torch.tensor(key),
        )
        if not self.training:
            self._add_annotations(sample, row, photo)
        return sample

    def _annotated(self, row: int, image: NDArray[np.uint8], box: NDArray[np.float32]) -> Photo:
        mask_file, mask = self.files[row].mask, None
        if mask_file is not None:
            agreement = decode_image(mask_file, "L")
            mask = agreement > agreement.max() / 2  # grey steps say how many annotators agree
        points = self.tables.points[row].astype(np.float32)
        return Photo(image, object_mask=mask, points=points, visible=self.tables.visible[row], box=box)

    def _add_annotations(self, sample: Sample, row: int, photo: Photo) -> None:
        assert photo.box is not None
        assert photo.points is not None
        assert photo.visible is not None
        sample["bounding_box"] = torch.from_numpy(photo.box)
        sample["part_points"] = torch.from_numpy(photo.points)
        sample["part_visible"] = torch.from_numpy(photo.visible)
        if photo.object_mask is not None:
            sample["object_mask"] = torch.from_numpy(photo.object_mask)
        if self.concepts is not None:
            by_image = self.certainty is not None
            sample["concepts"] = self.concepts[row if by_image else int(self.tables.labels[row])]
        if self.certainty is not None:
            sample["concept_certainty"] = self.certainty[row]


def mask_folder(folder: Path) -> Path | None:
    """Where the optional masks lie, beside or inside the official folder."""
    return next((place / MASKS for place in (folder, folder.parent) if (place / MASKS).is_dir()), None)


def image_files(tables: CubTables) -> list[ImageFile]:
    """Image and mask file of every image in the tables."""
    masks = mask_folder(tables.folder)
    return [
        ImageFile(name, tables.folder / "images" / path, masks / Path(path).with_suffix(".png") if masks else None)
        for name, path in zip(tables.ids, tables.paths, strict=True)
    ]
