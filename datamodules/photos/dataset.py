"""Data sets of photos in files: the table of what is known about the photos, and samples of some of its rows."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray

from protometry.datamodules.dataset import ImageDataset, Index, epoch_and_position
from protometry.datamodules.photos.alike import middle_hash
from protometry.datamodules.photos.files import decode_image
from protometry.datamodules.photos.kept_photos import KeptPhotos
from protometry.datamodules.photos.polygons import polygon_mask
from protometry.datamodules.photos.problems import Problems
from protometry.datamodules.photos.verify import ImageFile, Mark
from protometry.datamodules.sample import Batch, Capabilities, ClassTables, sample_key
from protometry.datamodules.splits import Split
from protometry.datamodules.transforms.crop_and_augment import Photo, PhotoTransform, transform_seed
from protometry.datamodules.transforms.placement import Placement, clipped_boxes, placed_boxes, placed_points
from protometry.datamodules.views import stratified_rows

AUGMENTED = "training images are augmented and carry no boxes, points, masks or maps"
HASHED = 256  # files, by whose content data of equal names and sizes are told apart


@dataclass(frozen=True)
class PhotoTable:
    """What tables or folders say about n photos, in canonical order (official number, or sorted path).

    Args:
        dataset: name of the data set in ``split.json``.
        class_names: names of the source classes, by which splits are stratified.
        labels: ``(n,)`` int64 source class of each photo.
        is_test: ``(n,)`` bool official split, or None where there is none.
        boxes: ``(n, 4)`` inclusive pixels (x0, y0, x1, y1), which may exceed the photo, or None.
        points: ``(n, N, 2)`` (x, y) in pixels, or None.
        visible: ``(n, N)`` bool, where there are points.
        contexts: ``(n,)`` int64 background context, or None.
        outlines: polygons ``(P, 2)`` of the object of each photo, where no files have its mask, or None.
        kept_together: of each photo, the name of the group that no split divides, or None.
    """

    dataset: str
    folder: Path
    class_names: list[str]
    files: list[ImageFile]
    labels: NDArray[np.int64]
    is_test: NDArray[np.bool_] | None = None
    boxes: NDArray[np.float64] | None = None
    points: NDArray[np.float32] | None = None
    visible: NDArray[np.bool_] | None = None
    contexts: NDArray[np.int64] | None = None
    outlines: list[list[NDArray[np.float64]]] | None = None
    kept_together: list[str] | None = None

    def marks(self, row: int, box: str, points: Sequence[str]) -> tuple[Mark, ...]:
        """The box and the visible points of a photo, which must not lie outside it.

        Args:
            row: of the photo.
            box: what says where its box is.
            points: what says where its N points are.
        """
        boxes = () if self.boxes is None else (Mark.box(box, self.boxes[row]),)
        if self.points is None or self.visible is None:
            return boxes
        visible = np.flatnonzero(self.visible[row]).tolist()
        return (*boxes, *(Mark.point(points[part], self.points[row, part].astype(np.float64)) for part in visible))


class PhotoDataset(ImageDataset):
    """The photos of a table as an evaluation sees them.

    Whatever a data set has beyond its table goes into hooks: maps into ``mark``, targets of another kind into
    ``add_targets``, further fields into ``annotate``, tables that depend on the training photos into ``learn``.

    Attributes:
        tables: what is known of parts, concepts and classes.
        rows: ``(n,)`` int64, the photos of this data set as indices into the table.
        training: whether samples are augmented and carry image, targets and ids only.
        multi_label: whether ``labels`` are the logits of a model.
        upright: whether photos are turned as their EXIF tags say. Boxes, points, masks and what :meth:`mark` adds count
            pixels as they are stored, so that photos with any of these stay as they are.
        kept: where the pixels of photos in the frame are kept, if they are.
        marks_without_pixels: whether :meth:`mark` does without the pixels and the box of a photo, which may be kept
            then. Of a photo that is kept, it only sees how large it is.
    """

    multi_label = False
    marks_without_pixels = False
    kept: KeptPhotos | None = None

    def __init__(self, table: PhotoTable, transform: PhotoTransform) -> None:
        self.table, self.transform = table, transform
        self.tables = ClassTables()
        self.training, self.seed = False, 0
        annotated = any(known is not None for known in (table.boxes, table.points, table.outlines))
        annotated = annotated or type(self).mark is not PhotoDataset.mark
        self.upright = not annotated and all(file.mask is None for file in table.files)
        self._choose(np.arange(len(table.files)))

    @property
    def class_names(self) -> list[str]:
        """Names of the K logits."""
        return self.table.class_names

    @property
    def sample_ids(self) -> list[str]:
        """Ids of the photos, in order."""
        return [self.table.files[row].sample_id for row in self.rows.tolist()]

    @property
    def contents(self) -> list[str]:
        """Ids of the photos, sizes of their files in bytes, and for some a hash of the file, in order.

        Files are hashed for at most 256 photos, drawn by class as in :class:`.Stratified`, by :func:`.middle_hash`:
        where pixels are not compressed, other photos are as large.
        """
        files, hashed = [self.table.files[row] for row in self.rows.tolist()], [""] * len(self)
        for position in stratified_rows(self.labels, self._keys, HASHED) if files else ():
            hashed[position] = f"\t{middle_hash(files[position].path)}"
        sizes = [f"{file.sample_id}\t{file.path.stat().st_size}" for file in files]
        return [size + more for size, more in zip(sizes, hashed, strict=True)]

    @property
    def labels(self) -> NDArray[np.int64]:
        """The source classes of the photos, in order."""
        return self.table.labels[self.rows]

    @property
    def strata(self) -> tuple[NDArray[np.int64], list[str]]:
        """By what each photo of the table is divided, and the names: the source classes, or what a subclass says."""
        return self.table.labels, self.table.class_names

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, rows: Sequence[int]) -> Self:
        """The same samples of some rows of the table."""
        chosen = copy.copy(self)
        chosen._choose(np.array(rows, dtype=np.int64))
        return chosen

    def training_part(self, rows: Sequence[int], transform: PhotoTransform, seed: int) -> Self:
        """Training samples of some rows of the table: augmented, with targets, without annotations."""
        chosen = self.part(rows)
        chosen.transform, chosen.training, chosen.seed = transform, True, seed
        return chosen

    def _choose(self, rows: NDArray[np.int64]) -> None:
        self.rows = rows
        self._keys = np.array([sample_key(name) for name in self.sample_ids], dtype=np.int64)

    def learn(self, train_rows: NDArray[np.int64]) -> None:
        """Set the tables that depend on the training photos, rows of the table."""

    def capabilities(self, split: Split = "test") -> Capabilities:
        """Which optional fields the samples of a split carry; subclasses ``replace`` what they know better."""
        fields = {
            "object_mask": self.table.outlines is not None or any(file.mask is not None for file in self.table.files),
            "bounding_box": self.table.boxes is not None,
            "part_points": self.table.points is not None,
        }
        there: bool | str = True if split != "train" else AUGMENTED
        flags = {name: there for name, present in fields.items() if present}
        return Capabilities(**flags, **({"context": True} if self.table.contexts is not None else {}))

    def files_to_verify(self, problems: Problems) -> list[ImageFile]:
        """The files that have to be images, before a run."""
        return [self.table.files[row] for row in self.rows.tolist()]

    def mark(self, row: int, photo: Photo) -> Photo:
        """Put what is annotated on an evaluation photo beyond its table (a label map) on it, in its own pixels."""
        return photo

    def add_targets(self, batch: Batch, rows: NDArray[np.int64]) -> None:
        """Add targets other than ``label``, for training and evaluation, to a batch with images, ids and labels."""

    def annotate(self, batch: Batch, rows: NDArray[np.int64]) -> None:
        """Add further fields to evaluation samples, which have everything else already."""

    def batch(self, indices: Sequence[Index]) -> Batch:
        """Some samples, whose images are uint8 pixels."""
        pairs = [epoch_and_position(index) for index in indices]
        positions = np.array([position for _, position in pairs])
        rows = self.rows[positions]
        files = [self.table.files[row] for row in rows.tolist()]
        paths = [file.path for file in files]
        fields, placements = _stacked((self._framed(*pair) for pair in pairs), paths)
        batch = Batch(
            image=torch.from_numpy(fields["image"]),
            label=torch.from_numpy(self.table.labels[rows]),
            sample_id=[file.sample_id for file in files],
            sample_key=torch.from_numpy(self._keys[positions]),
        )
        if self.table.contexts is not None:
            batch["context"] = torch.from_numpy(self.table.contexts[rows])
        self.add_targets(batch, rows)
        if not self.training:
            _add_annotations(batch, fields, placements, paths)
            self.annotate(batch, rows)
        return batch

    def _framed(self, epoch: int, position: int) -> tuple[Photo, Placement]:
        """The pixels of a photo in the frame, and for evaluation its annotations as they are on the photo."""
        row, seed = int(self.rows[position]), None
        if self.training and self.transform.random:
            seed = transform_seed(self.seed, epoch, int(self._keys[position]))
        photo, image = self._photo(row)
        if not self.training:
            photo = self.mark(row, self._with_mask_and_points(row, photo))
        try:
            return self.transform.to_frame(photo, seed, image)
        except ValueError as error:
            raise ValueError(f"{self.table.files[row].path}: {error}") from error

    def decoded(self, row: int, path: Path, mode: Literal["RGB", "L"] = "RGB") -> NDArray[np.uint8]:
        """A photo, or what is annotated on it, see :func:`.decode_image`.

        Raises:
            ValueError: if it cannot be decoded, with the id to exclude.
        """
        try:
            return decode_image(path, mode, self.upright)
        except ValueError as error:
            raise ValueError(f"{error} {self.table.files[row].remedy}") from error

    def _photo(self, row: int) -> tuple[Photo, NDArray[np.uint8] | None]:
        """A photo and, unless they are still to be made from it, its pixels in the frame."""
        path, box = self.table.files[row].path, None if self.table.boxes is None else self.table.boxes[row]
        marked = not self.training and type(self).mark is not PhotoDataset.mark
        cut = self.transform.crop == "box" and box is None  # to a box that only a mark can bring
        if self.kept is None or cut or (marked and not self.marks_without_pixels):
            return self._with_box(row, self.decoded(row, path)), None
        key = self.kept.key(path, box)
        if found := self.kept.find(key):
            size, image = found
            return self._with_box(row, np.broadcast_to(np.uint8(0), (*size, 3))), image
        photo = self._with_box(row, self.decoded(row, path))
        image = self.transform.framed(photo)
        if self.kept.key(path, box) == key:  # nobody changed the file meanwhile
            self.kept.keep(key, photo.image.shape[:2], image)
        return photo, image

    def _with_box(self, row: int, image: NDArray[np.uint8]) -> Photo:
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

    def _with_mask_and_points(self, row: int, photo: Photo) -> Photo:
        if self.table.points is not None:
            visible = None if self.table.visible is None else self.table.visible[row]
            photo = replace(photo, points=self.table.points[row], visible=visible)
        if self.table.outlines is not None:
            return replace(photo, object_mask=polygon_mask(self.table.outlines[row], photo.image.shape[:2]))
        mask_file = self.table.files[row].mask
        if mask_file is None:
            return photo
        mask = self.decoded(row, mask_file, "L")
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
        actual = {name: (array.shape, array.dtype) for name, array in arrays.items()}
        if position == 0:
            stacked = {name: np.empty((len(paths), *array.shape), array.dtype) for name, array in arrays.items()}
            kinds = actual
        if actual != kinds:
            raise ValueError(
                f"Expected {paths[position]} to have the fields of {paths[0]}, {kinds}, but it has {actual}. Give all "
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
