"""Map-style data sets of torchvision, Hugging Face or the user under the sample contract."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Annotated, Any, Protocol, cast

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_warn
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Subset

from protometry.datamodules import splits
from protometry.datamodules.base import ImageDataModule
from protometry.datamodules.dataset import ImageDataset, Index, epoch_and_position, image_tensor
from protometry.datamodules.photos.files import pixels_of
from protometry.datamodules.sample import FIELDS, Capabilities, ClassTables, Sample, sample_key
from protometry.datamodules.splits import Split
from protometry.datamodules.transforms.crop_and_augment import (
    Augmentation,
    Photo,
    PhotoTransform,
    geometric_part,
    transform_seed,
)
from protometry.datamodules.transforms.placement import GeometryPreset
from protometry.datamodules.views import stratified_rows
from protometry.run_folder.settings import Effect

READ_TWICE = 3  # items, which show whether a data set is random
HASHED = 64  # images, by which data sets of equal length are told apart
PLACES = {  # fields of a sample -> what a photo calls them
    "object_mask": "object_mask",
    "label_map": "label_map",
    "part_points": "points",
    "part_visible": "visible",
    "bounding_box": "box",
}


class Items(Protocol):
    """A map-style data set."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class WrappedDataset(ImageDataset):
    """The items of a map-style data set as samples.

    Args:
        items: pairs of an image and its target, or mappings with ``image``, ``label`` or ``labels``, and other fields
            of the sample contract, whose places count pixels of the image. An image is a PIL image or uint8 pixels,
            (H, W, 3) of NumPy or (3, H, W) of torch, which are transformed, or a float tensor (3, H, W) in [0, 1] of
            the size of the transform, which is left as it is. A target is the index or name of a class, or a 0 or 1 for
            each class.
        split: by which sample ids begin; ids are ``split/position``.
        classes: their names.
        seed: of augmentations.

    Raises:
        ValueError: for an item of another kind, or one that the data set cannot give, with its id.
    """

    def __init__(
        self, items: Items, split: str, classes: Sequence[str], transform: PhotoTransform, seed: int = 0
    ) -> None:
        self.items, self.split, self.classes = items, split, list(classes)
        self.transform, self.seed = transform, seed
        self.places = split != "train"  # annotations of places are for evaluation

    @property
    def sample_ids(self) -> list[str]:
        """The split and the position of every item."""
        return [self._id(position) for position in range(len(self))]

    def _id(self, position: int) -> str:
        return f"{'train' if self.split == 'projection' else self.split}/{position}"

    @cached_property
    def contents(self) -> list[str]:
        """The ids of all items, and for at most 64 of them, drawn by class, a hash of the image."""
        keys = np.array([sample_key(name) for name in self.sample_ids], dtype=np.int64)
        contents = self.sample_ids
        for position in stratified_rows(self.labels, keys, HASHED):
            pixels = self[position]["image"].numpy().tobytes()
            contents[position] += f"\t{hashlib.sha256(pixels).hexdigest()[:16]}"
        return contents

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """The classes of all items, without their images where the data set lists its targets."""
        listed = _listed_targets(self.items)
        labels = []
        for position in range(len(self)):
            with self._named(position):
                target = self._fields(position)[1] if listed is None else listed[position]
                labels.append(self._targets(target)["label"])
        return np.array(labels, dtype=np.int64)

    @cached_property
    def _optional(self) -> set[str]:
        """What the first item has besides image and label."""
        with self._named(0):
            _, target, more = self._fields(0)
            return {*more, *self._targets(target)}

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: Index) -> Sample:
        """One item as a sample."""
        epoch, position = epoch_and_position(index)
        name = self._id(position)
        with self._named(position):
            image, target, more = self._fields(position)
            targets = self._targets(target)
            if differing := sorted({*more, *targets} ^ self._optional):
                raise ValueError(
                    f"Expected every sample to have the fields of the first, but only one of both has {differing[0]!r}."
                )
            sample: dict[str, Any] = {**self._framed(image, more, epoch, sample_key(name)), **targets}
            others = {field: _as_field(field, value) for field, value in more.items() if field not in PLACES}
        ids = {"sample_id": name, "sample_key": torch.tensor(sample_key(name))}
        return cast("Sample", {**others, **sample, "label": torch.tensor(sample["label"]), **ids})

    @contextmanager
    def _named(self, position: int) -> Iterator[None]:
        """Have errors about an item name it, also those of a data set of others, which are of any type."""
        try:
            yield
        except Exception as error:
            if isinstance(error, MemoryError) or (isinstance(error, IndexError) and not 0 <= position < len(self)):
                raise  # the end of an iteration
            said = str(error) if str(error).startswith("Expected") else f"Expected an item, but got {error!r:.300}."
            raise ValueError(f"{said} This is sample {self._id(position)}.") from error

    def _fields(self, position: int) -> tuple[Any, Any, dict[str, Any]]:
        """Image and target of an item, and its other fields."""
        item = self.items[position]
        if isinstance(item, Sequence) and len(item) == 2:
            return item[0], item[1], {}
        target = next((name for name in ("labels", "label") if isinstance(item, Mapping) and name in item), None)
        if target is None or "image" not in item:
            got = f"the keys {sorted(item)}" if isinstance(item, Mapping) else f"a {type(item).__name__}"
            raise ValueError(
                f"Expected (image, label), or a mapping with `image` and `label` or `labels`, but got {got}."
            )
        known = {name: value for name, value in item.items() if name in FIELDS and value is not None}
        return item["image"], item[target], {name: known[name] for name in known if name not in ("image", target)}

    def _targets(self, target: Any) -> dict[str, Any]:
        """``label``, and ``labels`` for several; the first then decides where images are drawn by class."""
        if isinstance(target, str):
            if target not in self.classes:
                raise ValueError(f"Expected a label among the {len(self.classes)} `classes`, but got {target!r}.")
            return {"label": self.classes.index(target)}
        try:
            values = torch.as_tensor(target)
        except (TypeError, ValueError, RuntimeError):
            values = torch.tensor(torch.nan)
        if values.ndim == 1 and len(values) == len(self.classes) and bool(((values == 0) | (values == 1)).all()):
            return {"label": int(values.float().argmax()), "labels": values.bool()}
        if values.ndim or values.is_floating_point() or not 0 <= int(values) < len(self.classes):
            raise ValueError(
                f"Expected a label below {len(self.classes)}, the number of `classes`, or a 0 or 1 for each of them "
                f"(where it is unknown, either, and a 0 in `label_certainty`), but got {target!r:.60}."
            )
        return {"label": int(values)}

    def _framed(self, image: Any, more: Mapping[str, Any], epoch: int, key: int) -> dict[str, Tensor]:
        """The image in the frame of the model, and for evaluation the places on it."""
        places = {name: _as_field(name, more[name]) for name in PLACES if self.places and name in more}
        if isinstance(image, Tensor) and image.is_floating_point():
            return {"image": self._checked(image), **places}
        marks: dict[str, Any] = {PLACES[name]: value.numpy() for name, value in places.items()}
        seed = transform_seed(self.seed, epoch, key) if self.transform.random else None
        pixels = pixels_of(image)
        for field in ("object_mask", "label_map"):
            if field in places and places[field].shape != pixels.shape[:2]:
                raise ValueError(
                    f"Expected `{field}` to be as large as the image, {pixels.shape[:2]}, but got "
                    f"{tuple(places[field].shape)}."
                )
        photo = self.transform(Photo(pixels, **marks), seed)
        placed = {name: torch.from_numpy(getattr(photo, mark)) for name, mark in PLACES.items() if name in places}
        return {"image": image_tensor(torch.from_numpy(photo.image)), **placed}

    def _checked(self, image: Tensor) -> Tensor:
        low, high = image.aminmax()
        if image.shape != (3, *self.transform.size) or not (low >= 0 and high <= 1) or self.transform.random:
            raise ValueError(
                f"Expected a float image to be {(3, *self.transform.size)} in [0, 1] without `augmentation`, but got "
                f"{tuple(image.shape)} in [{low:.3g}, {high:.3g}]. Hand over PIL images or uint8 pixels to have them "
                "resized and augmented; leave out Normalize, the model does that."
            )
        return image.float()


class WrappedDatasets(ImageDataModule):
    """Loaders over map-style data sets; a subclass in a module of its own returns them in ``datasets``.

    Args:
        classes: their names; by default ``classes`` of the training data, or names of its feature (Hugging Face).
        augmentation: as of :class:`.PhotoDataModule`, for images that are not float tensors.
        geometry: how an image becomes the frame, as of :class:`.PhotoDataModule`.
        loading: the other arguments of :class:`.ImageDataModule`.

    Example:
        >>> photos = [(np.full((40, 60, 3), 50 * number, np.uint8), number % 2) for number in range(4)]
        >>> data = WrappedDatasets.from_datasets(photos, None, photos, classes=["wren", "jay"], image_size=32)
        >>> data.dataset("test")[1]["image"].shape, data.num_classes, data.has_validation
        (torch.Size([3, 32, 32]), 2, False)
    """

    tables = ClassTables()  # a property of the base; set for data with concepts or parts
    is_read = property(lambda self: "_datasets" in vars(self))

    def __init__(
        self,
        classes: Sequence[str] | None = None,
        augmentation: Annotated[Augmentation, Effect.TRAINING] = "none",
        geometry: GeometryPreset = "stretch",
        **loading: Any,
    ) -> None:
        super().__init__(**loading)
        self.classes, self.augmentation, self.geometry = classes, augmentation, geometry
        self._transform(augmentation)  # refuses unknown names

    @classmethod
    def from_datasets(  # type: ignore[override]  # Lightning's also takes iterable data sets, and none for training
        cls,
        train_dataset: Items,
        val_dataset: Items | None = None,
        test_dataset: Items | None = None,
        classes: Sequence[str] | None = None,
        projection_dataset: Items | None = None,
        tables: ClassTables | None = None,
        **options: Any,
    ) -> GivenDatasets:
        """Wrap map-style data sets, such as those of torchvision or Hugging Face.

        Args:
            train_dataset: as :class:`.WrappedDataset` takes it, and so are the others.
            val_dataset: without it, there is no validation.
            test_dataset: without it, the model cannot be tested.
            classes: their names, if the training data do not name them.
            projection_dataset: the training images without random changes, if ``train_dataset`` makes such changes.
            tables: names of parts and concepts, if items have such annotations.
            options: of :class:`.WrappedDatasets`.

        Raises:
            ValueError: if an option is out of range.
        """
        data = GivenDatasets(classes, **options)
        given = {"train": train_dataset, "val": val_dataset, "test": test_dataset}
        data.given = given | {"projection": projection_dataset}
        data.tables = tables or ClassTables()
        return data

    @abstractmethod
    def datasets(self) -> Mapping[str, Items | None]:
        """The data sets by split: ``train``, and perhaps ``val``, ``test`` and ``projection``.

        ``projection`` holds the training images without the random changes that ``train`` makes of them itself.
        """

    @cached_property
    def _datasets(self) -> dict[str, Items]:
        """The data sets that there are; a warning if two of the parts are one."""
        given = {split: items for split, items in self.datasets().items() if items is not None}
        parts = [id(items) for split, items in given.items() if split != "projection"]
        if len(set(parts)) < len(parts):
            rank_zero_warn("Two of `train`, `val` and `test` are one data set, so results are not on new images.")
        return given

    @cached_property
    def class_names(self) -> list[str]:
        """Names of the K logits."""
        train: Any = self._datasets["train"]
        while isinstance(train, Subset):
            train = train.dataset
        features: Any = getattr(train, "features", None) or {}
        names = self.classes or getattr(train, "classes", None) or getattr(features.get("label"), "names", None)
        if not names or len(set(names)) < max(len(names), 2):
            raise ValueError(
                f"Expected argument `classes` to name at least two different classes of {type(train).__name__}, which "
                f"does not name them itself, but got {names}."
            )
        return list(names)

    @property
    def num_classes(self) -> int:
        """Number of logits."""
        return len(self.class_names)

    @property
    def class_weights(self) -> Tensor:
        """``(K,)`` weights of the classes, by their shares of the training images."""
        multilabel = self.capabilities("train").multi_label is True
        labels = [] if multilabel else self.dataset("projection").labels.tolist()
        return splits.class_weights(labels, self.num_classes)

    @property
    def has_validation(self) -> bool:
        """Whether there is a validation split."""
        return bool(self._datasets.get("val"))

    @property
    def fixed_training_images(self) -> bool:
        """Whether nothing is augmented."""
        return self.augmentation == "none" and "projection" not in self._datasets and not self.loading.two_views

    def setup(self, stage: str | None = None) -> None:
        """Refuse data sets that are empty, or whose training images are random without plain ones for projection."""
        for split, items in self._datasets.items():
            if not len(items):
                raise ValueError(f"Expected the data set `{split}` to have items, but it is empty.")
        plain = self.dataset("projection")
        for position in range(min(READ_TWICE, len(plain))):
            if not torch.equal(plain[position]["image"], plain[position]["image"]):
                raise ValueError(
                    "Expected the training images to be the same each time they are read, because prototypes are "
                    "projected onto them, but they change. Leave random transforms out of the data set and set "
                    "`augmentation`, or hand over the images without them as `projection_dataset`."
                )

    def dataset(self, split: Split) -> WrappedDataset:
        """The samples of one split."""
        part = "train" if split == "projection" and split not in self._datasets else split
        if part not in self._datasets:
            raise ValueError(f"Expected a data set `{split}`, but got {', '.join(self._datasets)} only.")
        augmentation: Augmentation = "none"
        if split == "train":
            augmentation = geometric_part(self.augmentation) if self.loading.two_views else self.augmentation
        return WrappedDataset(self._datasets[part], split, self.class_names, self._transform(augmentation), self.seed)

    def _transform(self, augmentation: Augmentation) -> PhotoTransform:
        return PhotoTransform(self.image_size, self.geometry, augmentation=augmentation)

    def capabilities(self, split: Split) -> Capabilities:
        """Which optional fields the first sample of the split has."""
        flags = {flag for name in self.dataset(split)[0] if name in FIELDS for flag in FIELDS[name].flags}
        return Capabilities(**dict.fromkeys(flags - {"concepts_class"}, True))


class GivenDatasets(WrappedDatasets):
    """Loaders over the data sets of :meth:`.WrappedDatasets.from_datasets`, which live as long as the program."""

    given: Mapping[str, Items | None] | None = None

    def datasets(self) -> Mapping[str, Items | None]:
        """The data sets by split.

        Raises:
            ValueError: if the data module was made of what a checkpoint stores.
        """
        if self.given is None:
            raise ValueError(
                "Expected data sets, but a run does not store those of `WrappedDatasets.from_datasets`. Define a "
                "subclass of WrappedDatasets in a module of yours that returns them, and train with it."
            )
        return self.given

    @property
    def dataset_name(self) -> str:
        """The data set in results: the class of the training data."""
        return type(self._datasets["train"]).__name__


def _as_field(name: str, value: Any) -> Tensor:
    """A value in the dtype of the sample contract."""
    wanted, letters = FIELDS[name], FIELDS[name].shape
    try:
        field = torch.as_tensor(np.asarray(value)).to(wanted.dtype)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"Expected `{name}` to be numbers {letters}, but got {value!r:.60}.") from error
    sizes = zip(field.shape, letters, strict=False)
    if field.ndim != len(letters) or any(isinstance(letter, int) and letter != size for size, letter in sizes):
        raise ValueError(f"Expected `{name}` to be numbers {letters}, but got {tuple(field.shape)} of them.")
    return field


def _listed_targets(items: Any) -> Sequence[Any] | None:
    """The targets of all items, if the data set lists them as they are handed out."""
    if isinstance(items, Subset):
        listed = _listed_targets(items.dataset)
        return None if listed is None else [listed[index] for index in items.indices]
    if "label" in getattr(items, "column_names", ()):  # Hugging Face
        return cast("Sequence[Any]", items["label"])
    targets = getattr(items, "targets", None)
    known = targets is not None and len(targets) == len(items) and getattr(items, "target_transform", None) is None
    return targets if known else None
