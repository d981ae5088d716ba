"""CUB-200-2011 (Wah et al. 2011): 200 bird species with boxes, 15 part points, attributes and optional masks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_info
from numpy.typing import NDArray
from torch import Tensor

from datamodules import splits
from datamodules.base import ImageDataModule, Split
from datamodules.cub200_concepts import (
    IMAGE_LABELS,
    Attributes,
    Concepts,
    Selection,
    attributes_missing,
    group_of_concept,
    part_groups,
    part_of_concept,
    read_attributes,
    select_concepts,
)
from datamodules.cub200_images import MASKS, CubImages, image_files, mask_folder
from datamodules.cub200_tables import (
    ARCHIVES,
    OFFICIAL_CLASSES,
    REMEDY,
    CubTables,
    read_class_names,
    read_tables,
)
from datamodules.download import download as download_archives
from datamodules.download import is_free
from datamodules.image_files import Problems, Verify, verify_images
from datamodules.sample import Capabilities
from datamodules.transforms import (
    Augmentation,
    Crop,
    GeometryPreset,
    PhotoTransform,
    ResizeFilter,
    geometric_part,
)

AUGMENTED = "training images are augmented and carry no annotations"


class Cub200(ImageDataModule):
    """CUB-200-2011, or its first classes.

    The tables below exist after ``setup``. Invisible points hold (0, 0); parts and points are in file order.

    Args:
        root: the folder ``CUB_200_2011`` or the one that holds it; only read.
        classes: keep the first classes only; all if None.
        scheme: ``cv70`` (70/30, four folds; Schlinge et al. 2025) or the ``official`` train and test lists.
        fold: validation fold; None trains without validation. ``official`` has fold 0 only.
        val_fraction: ``official``: share of each class's training images held out for validation; 0 for none.
        split_seed: seed of the split.
        split_file: a ``split.json`` to use instead of ``scheme``, ``val_fraction`` and ``split_seed``.
        exclude: image ids to leave out.
        crop: ``box`` cuts photos to the bounding box.
        geometry: how a photo becomes the frame, see :class:`datamodules.transforms.PhotoTransform`.
        resize_filter: ``area`` or ``linear``.
        augmentation: of training images; where they come in two views, its photometry gives way to that of the views.
        concept_selection: ``fixed`` (the 112 of Koh et al. 2020), ``vote`` (their rule) or ``all`` attributes.
        concept_level: ``class`` gives every image its class's concepts, ``image`` its own annotations.
        min_certainty: ``image``: a concept counts as present from this certainty (1..4) on.
        verify: how images are checked beforehand, see :func:`datamodules.image_files.verify_images`.
        download: fetch the archives if ``root`` is missing or empty.
        base: ``image_size``, ``batch_size``, ``eval_batch_size``, ``num_workers`` and ``seed`` of
            :class:`datamodules.base.ImageDataModule`.

    Raises:
        ValueError: if an argument is out of range.
    """

    concept_names: list[str]
    concept_group_names: list[str]
    concept_to_group: Tensor
    concept_to_part: Tensor
    class_concepts: Tensor
    class_concepts_binary: Tensor
    concept_source: str
    class_attributes: Tensor
    part_group_names: list[str]
    class_weights: Tensor

    def __init__(  # noqa: PLR0913 - one flat list, so that every knob is one flag
        self,
        root: str,
        classes: int | None = None,
        scheme: splits.Scheme = "cv70",
        fold: int | None = 0,
        val_fraction: float = 0.2,
        split_seed: int = 42,
        split_file: str | None = None,
        exclude: Sequence[str] = (),
        crop: Crop = "none",
        geometry: GeometryPreset = "stretch",
        resize_filter: ResizeFilter = "area",
        augmentation: Augmentation = "geometric_photometric",
        concept_selection: Selection = "fixed",
        concept_level: Literal["class", "image"] = "class",
        min_certainty: int = 1,
        verify: Verify = "decode",
        download: bool = False,
        **base: Any,
    ) -> None:
        super().__init__(**base)
        if concept_level not in ("class", "image"):
            raise ValueError(f"Expected argument `concept_level` to be 'class' or 'image', but got {concept_level!r}.")
        if not 1 <= min_certainty <= 4:
            raise ValueError(f"Expected argument `min_certainty` to be between 1 and 4, but got {min_certainty}.")
        self.root = root
        self.classes = classes
        self.scheme = scheme
        self.fold = fold
        self.val_fraction = val_fraction
        self.split_seed = split_seed
        self.split_file = split_file
        self.exclude = list(exclude)
        self.concept_selection = concept_selection
        self.concept_level = concept_level
        self.min_certainty = min_certainty
        self.verify = verify
        self.download = download
        self._evaluation = PhotoTransform(self.image_size, geometry, crop, resize_filter)
        self._training, self._shared = (
            PhotoTransform(self.image_size, geometry, crop, resize_filter, steps)
            for steps in (augmentation, geometric_part(augmentation))
        )
        self._promised: int | None = None
        self._parts: dict[str, list[int]] = {}

    @property
    def num_classes(self) -> int:
        """Number of classes: of the class table, or the official 200 before a download."""
        if self.download and is_free(Path(self.root)):
            self._promised = min(self.classes or OFFICIAL_CLASSES, OFFICIAL_CLASSES)
            return self._promised
        return len(self.class_names)

    @property
    def class_names(self) -> list[str]:
        """The K class names, such as ``001.Black_footed_Albatross``."""
        return read_class_names(self.root, self.classes)

    @property
    def part_names(self) -> list[str]:
        """The 15 points in file order."""
        self.setup()
        return self._tables.part_names

    @property
    def part_to_group(self) -> Tensor:
        """``(15,)`` int64 index into ``part_group_names``, in which left and right are merged."""
        self.setup()
        return torch.tensor(self._groups)

    @property
    def has_validation(self) -> bool:
        """Whether the fold has a validation part."""
        self.setup()
        return bool(self._parts["val"])

    def prepare_data(self) -> None:
        """Download if asked to, then check every table and every image.

        Raises:
            FileNotFoundError: if the data or a part of it is missing.
            ValueError: if tables are malformed or disagree, or images cannot be decoded.
        """
        if self.download and is_free(Path(self.root)):
            download_archives(ARCHIVES, Path(self.root))
        tables = read_tables(self.root, self.classes)
        if attributes_missing(tables.folder) is None:
            read_attributes(tables)
        excluded = self._excluded(tables)
        files = [file for file in image_files(tables) if file.sample_id not in excluded]
        problems = Problems(f"CUB-200-2011 in {tables.folder}", REMEDY)
        verify_images(files, self.verify, self.num_workers, problems)
        problems.raise_any()

    def setup(self, stage: str | None = None) -> None:
        """Read the tables and make the split; a second call does nothing.

        Args:
            stage: ignored, all stages need the same tables.

        Raises:
            FileNotFoundError: if the data is missing.
            ValueError: if the split does not fit the data, or concepts are asked for that the data does not have.
        """
        if self._parts:
            return
        tables = read_tables(self.root, self.classes)
        if self._promised not in (None, len(tables.class_names)):
            raise ValueError(
                f"Expected {tables.folder} to have the {self._promised} classes the model was built for, but it has "
                f"{len(tables.class_names)}. Build the data module again."
            )
        excluded = self._excluded(tables)
        rows = [row for row, name in enumerate(tables.ids) if name not in excluded]
        population = splits.Population(
            "cub200", [tables.ids[row] for row in rows], tables.labels[rows].tolist(), tables.class_names, excluded
        )
        self._splits = self._make_splits(population, tables.is_test[rows].tolist())
        parts = {
            part: [rows[i] for i in chosen] for part, chosen in self._splits.indices(population, self.fold).items()
        }
        self._tables = tables
        self._files = image_files(tables)
        self.class_weights = splits.class_weights(tables.labels[parts["train"]].tolist(), len(tables.class_names))
        self.part_group_names, self._groups = part_groups(tables.part_names)
        self._set_concepts(tables, np.array(parts["train"]))
        if mask_folder(tables.folder) is None:
            rank_zero_info(f"{tables.folder.name}: no {MASKS}/ under root; no object masks.")
        self._parts = parts

    def _excluded(self, tables: CubTables) -> list[str]:
        recorded = splits.read_splits(self.split_file).exclude if self.split_file else []
        excluded = list(dict.fromkeys([*self.exclude, *recorded]))
        known = set(tables.ids)
        unknown = [name for name in excluded if name not in known]
        if unknown:
            raise ValueError(
                f"Expected argument `exclude` to hold image ids of {tables.folder}, but got {len(unknown)} others; the "
                f"first is {unknown[0]!r}."
            )
        return excluded

    def _make_splits(self, population: splits.Population, is_test: list[bool]) -> splits.Splits:
        if self.split_file:
            given = splits.read_splits(self.split_file)
            splits.require_same_content(given, population)
            return given
        if self.scheme == "cv70":
            return splits.cv70(population, self.split_seed)
        if self.scheme == "official":
            return splits.official(population, is_test, self.val_fraction, self.split_seed)
        raise ValueError(f"Expected argument `scheme` to be 'cv70' or 'official', but got {self.scheme!r}.")

    def _set_concepts(self, tables: CubTables, train_rows: NDArray[np.int64]) -> None:
        self._no_attributes = attributes_missing(tables.folder)
        self._image_concepts: Tensor | None = None
        self._certainty: Tensor | None = None
        if self._no_attributes is None:
            attributes = read_attributes(tables)
            concepts = select_concepts(attributes, self.concept_selection, tables.labels, train_rows)
        else:
            rank_zero_info(f"{tables.folder.name}: {self._no_attributes}; no concepts.")
            attributes = Attributes([], np.zeros((len(tables.class_names), 0)))
            concepts = Concepts(np.zeros(0, dtype=np.int64), attributes.continuous > 0, self._no_attributes)
        chosen = concepts.indices
        self.concept_names = [attributes.names[i] for i in chosen]
        groups = [group_of_concept(name) for name in self.concept_names]
        self.concept_group_names = list(dict.fromkeys(groups))
        self.concept_to_group = torch.tensor([self.concept_group_names.index(name) for name in groups])
        self.concept_to_part = torch.tensor(
            [part_of_concept(name, self.part_group_names) for name in self.concept_names]
        )
        self.class_attributes = torch.from_numpy(attributes.continuous).float()
        self.class_concepts = self.class_attributes[:, torch.from_numpy(chosen)]
        self.class_concepts_binary = torch.from_numpy(concepts.binary)
        self.concept_source = concepts.source
        if self.concept_level == "class":
            return
        if attributes.present is None or attributes.certainty is None:
            raise ValueError(
                f"Expected {IMAGE_LABELS} to be under `root` for `concept_level: image`, but it is not. Use "
                "`concept_level: class`."
            )
        self._certainty = torch.from_numpy(attributes.certainty[:, chosen])
        self._image_concepts = torch.from_numpy(attributes.present[:, chosen]) & (self._certainty >= self.min_certainty)

    def dataset(self, split: Split) -> CubImages:
        """The samples of one split; "projection" is the training images through the evaluation transform."""
        self.setup()
        training = split == "train"
        by_class = self.class_concepts_binary if self.concept_names else None
        augmented = self._shared if self.two_views else self._training
        return CubImages(
            self._tables,
            self._files,
            self._parts["train" if split == "projection" else split],
            augmented if training else self._evaluation,
            training,
            self.seed,
            by_class if self._image_concepts is None else self._image_concepts,
            self._certainty,
        )

    def capabilities(self, split: Split) -> Capabilities:
        """Which optional fields the samples of the split carry."""
        self.setup()
        attributes = self._no_attributes or True
        if split == "train":
            fields = ("object_mask", "part_points", "bounding_box", "concepts_class", "concepts_image")
            return Capabilities(**dict.fromkeys((*fields, "concept_certainty"), AUGMENTED), class_attributes=attributes)
        labels = self._tables.folder / IMAGE_LABELS
        by_image: bool | str = True
        if self._image_concepts is None:
            by_image = "concept_level is class" if labels.is_file() else f"no {IMAGE_LABELS} under root"
        return Capabilities(
            object_mask=mask_folder(self._tables.folder) is not None or f"no {MASKS}/ under root",
            part_points=True,
            bounding_box=True,
            concepts_class=attributes if by_image is not True else "concept_level is image",
            concepts_image=by_image,
            concept_certainty=by_image,
            class_attributes=attributes,
        )

    def split_record(self) -> dict[str, Any]:
        """The content of ``split.json``."""
        self.setup()
        return self._splits.record()
