"""Photos in files as samples: the table of what is known about them, and the data set over some of its rows."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from datamodules.dataset import ImageDataset, Index, epoch_and_position
from datamodules.photos.files import ImageFile, decode_image
from datamodules.sample import Batch, sample_key
from datamodules.transforms.photo import Photo, PhotoTransform, transform_seed
from datamodules.transforms.placement import Placement, clipped_boxes, placed_boxes, placed_points

if TYPE_CHECKING:
    from datamodules.photos.data_module import PhotoDataModule


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
        self._rows = np.array(rows, dtype=np.int64)
        self._keys = np.array([sample_key(name) for name in self.sample_ids], dtype=np.int64)

    @property
    def sample_ids(self) -> list[str]:
        """Ids of the photos, in order."""
        return [self.table.files[row].sample_id for row in self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, indices: Sequence[Index]) -> Batch:
        """Some samples, whose images are uint8 pixels."""
        pairs = [epoch_and_position(index) for index in indices]
        positions = np.array([position for _, position in pairs])
        rows = self._rows[positions]
        paths = [self.table.files[row].path for row in rows.tolist()]
        fields, placements = _stacked((self._framed(*pair) for pair in pairs), paths)
        batch = Batch(
            image=torch.from_numpy(fields["image"]),
            label=torch.from_numpy(self.table.labels[rows]),
            sample_id=[self.table.files[row].sample_id for row in rows.tolist()],
            sample_key=torch.from_numpy(self._keys[positions]),
        )
        if self.table.contexts is not None:
            batch["context"] = torch.from_numpy(self.table.contexts[rows])
        self.source.add_targets(batch, rows)
        if not self.training:
            _add_annotations(batch, fields, placements, paths)
            self.source.annotate(batch, rows)
        return batch

    def _framed(self, epoch: int, position: int) -> tuple[Photo, Placement]:
        """The pixels of a photo in the frame, and for evaluation its annotations as they are on the photo."""
        row = self.rows[position]
        photo, seed = self._photo(row), None
        if not self.training:
            photo = self.source.mark(row, self._with_mask(row, photo))
        elif self.transform.random:
            seed = transform_seed(self.source.seed, epoch, int(self._keys[position]))
        try:
            return self.transform.to_frame(photo, seed)
        except ValueError as error:
            raise ValueError(f"{self.table.files[row].path}: {error}") from error

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
        return Photo(image, box=clipped_boxes(self.table.boxes[row], image.shape))

    def _with_mask(self, row: int, photo: Photo) -> Photo:
        mask_file = self.table.files[row].mask
        if mask_file is None:
            return photo
        mask = decode_image(mask_file, "L")
        return replace(photo, object_mask=mask > mask.max() / 2)  # grey steps say how many annotators agree


def _stacked(
    framed: Iterator[tuple[Photo, Placement]], paths: list[Path]
) -> tuple[dict[str, NDArray[Any]], list[Placement]]:
    """The fields of some photos; each photo is gone before the next is opened, so that its memory serves again."""
    stacked: dict[str, NDArray[Any]] = {}
    kinds: dict[str, tuple[Any, Any]] = {}
    placements = []
    for position, (photo, placement) in enumerate(framed):
        arrays = {name: array for name, array in vars(photo).items() if array is not None}
        found = {name: (array.shape, array.dtype) for name, array in arrays.items()}
        if position == 0:
            stacked = {name: np.empty((len(paths), *array.shape), array.dtype) for name, array in arrays.items()}
            kinds = found
        if found != kinds:
            raise ValueError(
                f"Expected {paths[position]} to have the fields of {paths[0]}, {kinds}, but it has {found}. Give all "
                "photos the same annotations, also where nothing is seen (`visible`)."
            )
        for name, array in arrays.items():
            stacked[name][position] = array
        placements.append(placement)
    return stacked, placements


def _add_annotations(
    batch: Batch, fields: dict[str, NDArray[Any]], placements: list[Placement], paths: list[Path]
) -> None:
    if "box" in fields:
        batch["bounding_box"] = torch.from_numpy(placed_boxes(fields["box"], placements, paths))
    if "object_mask" in fields:
        batch["object_mask"] = torch.from_numpy(fields["object_mask"])
    if "label_map" in fields:
        batch["label_map"] = torch.from_numpy(fields["label_map"])
    if "points" in fields:
        points, visible = placed_points(fields["points"], fields.get("visible"), placements)
        batch["part_points"], batch["part_visible"] = torch.from_numpy(points), torch.from_numpy(visible)
