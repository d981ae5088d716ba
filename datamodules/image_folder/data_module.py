"""Photos in ImageNet-style folders: own data, ImageNet and its subsets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn
from numpy.typing import NDArray

from protometry.datamodules import splits
from protometry.datamodules.arguments import check_choice
from protometry.datamodules.image_folder.annotated import AnnotatedDataset, ConceptLevel, Task
from protometry.datamodules.image_folder.group_splits import cv70_of_groups, official_of_groups
from protometry.datamodules.image_folder.own_folder import REMEDY, Layout, own_photos
from protometry.datamodules.photos.class_attributes import read_attribute_table
from protometry.datamodules.photos.data_module import PhotoDataModule
from protometry.datamodules.photos.folders import PARTS
from protometry.datamodules.photos.problems import first_few
from protometry.datamodules.transforms.crop_and_augment import Crop, PhotoTransform
from protometry.run_folder.command_line.user_path import user_path

FolderScheme = Literal["auto", "cv70", "official", "test"]
LONG_TAIL = 10  # times as many training photos in the largest class as in the smallest
WITH_PUBLISHED_NUMBERS = (
    *("awa2", "cars196", "cifar10", "cifar100", "cub200", "funnybirds", "imagenet", "nico", "places365"),
    "stanford_dogs",
)  # names of data sets, to which a folder of such a name is not compared


def folder_name(root: str) -> str:
    """The name of a folder, also of ``.``."""
    return Path(os.path.abspath(user_path(root))).name


class ImageFolderDataset(AnnotatedDataset):
    """The photos below a folder, as an evaluation sees them; see :class:`ImageFolder` for layouts, classes and tables.

    Attributes of classes that no table describes follow the votes of all photos but the official test photos until
    :meth:`learn` names others.

    Args:
        parts: whether ``train/``, ``val/`` and ``test/`` in ``root`` are the official parts; a root that is one of them
            is then an error.
        transform: what makes the model's frame; by default, photos are resized to 224 x 224 pixels.

    Raises:
        FileNotFoundError: if a folder or file is not found.
        ValueError: if photos and classes do not fit.
    """

    def __init__(  # noqa: PLR0913 - the arguments of the data module
        self,
        root: str,
        layout: Layout = "folders",
        class_file: str | None = None,
        attribute_table: str | None = None,
        parts: bool = True,
        transform: PhotoTransform | None = None,
        table: str | None = None,
        task: Task | None = None,
        concept_level: ConceptLevel = "image",
    ) -> None:
        check_choice("layout", layout, ("folders", "flat"))
        check_choice("task", task, (None, "attributes", "single"))
        check_choice("concept_level", concept_level, ("class", "image"))
        own = own_photos(root, layout, class_file, parts, table)
        classes = None if attribute_table is None else read_attribute_table(user_path(attribute_table), own.keys)
        super().__init__(own.table, transform or PhotoTransform(), own.found, classes, task, concept_level)
        self.parts, self.part_of = own.parts, own.part_of


class ImageFolder(PhotoDataModule):
    """Photos whose class is the name of their folder, or the beginning of their name.

    A sample id is the path below ``root``. Files that are not images (by extension), hidden files and folders next to
    ``train/``, ``val/`` and ``test/`` are ignored.

    Args:
        root: the folder that holds ``train/`` with ``val/`` or ``test/``, or the class folders, or the files; only
            read.
        layout: ``folders``: ``{train,val,test}/<class>/**`` or ``<class>/**``; ``flat``: files ``<class>_<rest>``.
        scheme: ``official`` keeps the folders (without ``test/``, ``val/`` is the test part; without ``val/``,
            validation is held out of ``train/``; with ``fold: null``, ``val/`` next to ``test/`` is trained on),
            ``cv70`` divides all photos 70/30 with four folds, ``test`` keeps all for test, ``auto`` is ``official``
            where there are such folders and else ``cv70``.
        class_file: fixes the order of classes, for a head that has learnt them: a class per line, as its name alone or
            as ``wnid name``; without it they are sorted.
        attribute_table: attributes of the classes, see
            :func:`protometry.datamodules.photos.class_attributes.read_attribute_table`.
        table: says more of each photo, a file as in :mod:`protometry.datamodules.image_folder.annotations`, also below
            ``root``.
        task: ``attributes`` (multilabel) or ``single`` (which class it is); None takes the attributes if there is an
            ``attribute_table`` and no ``table``, several classes if the table has a column ``labels``, else the class.
        concept_level: ``image`` gives a photo its own attributes where the table has any, ``class`` those of its class.
        crop: ``box`` cuts photos to their boxes.
        photos: the other arguments of :class:`.PhotoDataModule`.

    Raises:
        ValueError: if an argument is out of range.
    """

    remedy = REMEDY

    def __init__(  # noqa: PLR0913 - one flat list, so that every knob is one flag
        self,
        root: str,
        layout: Layout = "folders",
        scheme: FolderScheme = "auto",
        class_file: str | None = None,
        attribute_table: str | None = None,
        table: str | None = None,
        task: Task | None = None,
        concept_level: ConceptLevel = "image",
        crop: Crop = "none",
        **photos: Any,
    ) -> None:
        check_choice("layout", layout, ("folders", "flat"))
        check_choice("scheme", scheme, ("auto", "cv70", "official", "test"))
        check_choice("task", task, (None, "attributes", "single"))
        check_choice("concept_level", concept_level, ("class", "image"))
        self.crop = crop
        super().__init__(root, **photos)
        self.title = folder_name(root)
        self.layout: Layout = layout
        self.scheme = scheme
        self._said = False  # what :meth:`setup` says of the data
        self.fold = None if scheme == "test" else self.fold  # nothing to hold out
        self.class_file = class_file
        self.attribute_table, self.table = attribute_table, table
        self.task: Task | None = task
        self.concept_level: ConceptLevel = concept_level

    def photo_dataset(self) -> ImageFolderDataset:
        """Look through the folders."""
        folders = self.root, self.layout, self.class_file, self.attribute_table, self.scheme == "auto"
        photos = ImageFolderDataset(*folders, self.transform(), self.table, self.task, self.concept_level)
        if self.crop == "box" and (reason := photos.capabilities().missing("bounding_box")):
            raise ValueError(f"Expected boxes for `crop: box`, but got none ({reason}). Use `crop: none`.")
        return photos

    @property
    def dataset_name(self) -> str:
        """The name of the folder, in results."""
        return f"{self.title} (own photos)" if self.title in WITH_PUBLISHED_NUMBERS else self.title

    @property
    def display_name(self) -> str:
        """The name of the folder, in messages."""
        return f"{self.title} ({type(self).__name__})"

    def setup(self, stage: str | None = None) -> None:
        """Read folders and table and make the split; before a training or a check, lines say what is notable."""
        super().setup(stage)
        if stage == "fit" and not self._said:
            self._said = True
            for line in self._notable():
                rank_zero_info(line)

    def _notable(self) -> Iterator[str]:
        """How `auto` divided the photos, columns that are not used, and classes that differ much in size."""
        photos = self.photos
        assert isinstance(photos, ImageFolderDataset)
        if self.hparams["scheme"] == "auto" and not self.split_file:
            yield f"{self.title}: {_division(photos, self.scheme)} (scheme {self.scheme})."
        if photos.found is not None and (unused := photos.found.unused):
            yield f"{self.table}: columns left out: {first_few([name or repr(name) for name in unused])}."
        labels = photos.table.labels[self._parts["train"]]
        unknown = photos.unknown(np.asarray(self._parts["train"], dtype=np.int64))
        if total := int(unknown.sum()):
            most = int(unknown.sum(axis=0).argmax())
            yield (
                f"{self.table}: {total} of {unknown.size} values of attributes of training photos are unknown and "
                f"left out of losses and metrics, most often {photos.tables.concept_names[most]!r} "
                f"({int(unknown[:, most].sum())} photos)."
            )
        counts = np.bincount(labels, minlength=len(self.class_names))
        most, least = int(counts.argmax()), int(counts.argmin())
        if not photos.multi_label and counts[most] >= LONG_TAIL * max(counts[least], 1):
            yield (
                f"{self.title}: {counts[most]} training photos show {self.class_names[most]!r}, but only "
                f"{counts[least]} {self.class_names[least]!r}. `--model.class_weights true` gives classes equal weight."
            )

    def make_splits(self, population: splits.Population, rows: NDArray[np.int64]) -> splits.Splits:
        """Divide the photos by ``scheme``; groups stay together, and ``auto`` divides classes that are small, too."""
        photos = self.photos
        assert isinstance(photos, ImageFolderDataset)
        if self.scheme != "auto":
            return self._divide(photos, population, rows)
        self.scheme = "official" if photos.parts else "cv70"
        try:
            divided = self._divide(photos, population, rows)
        except splits.TooFewSamplesError:
            divided = splits.few(population)
        self.scheme = divided.scheme
        return divided

    def _divide(
        self, photos: ImageFolderDataset, population: splits.Population, rows: NDArray[np.int64]
    ) -> splits.Splits:
        table, groups = photos.table, None
        if table.kept_together is not None:
            groups = [table.kept_together[row] for row in rows.tolist()]
        if self.scheme == "test":
            return splits.given(population, self.scheme, splits.SEED, population.ids, [])
        if self.scheme == "official" and photos.parts:
            parts = [photos.part_of[row] for row in rows.tolist()]
            _warn_of_shared_groups(groups or [], parts)
            test, val = ([population.ids[i] for i, of in enumerate(parts) if of == part] for part in ("test", "val"))
            if len(photos.parts) == len(PARTS):
                return splits.given(population, self.scheme, splits.SEED, test, [val])
            if groups is not None:
                return official_of_groups(population, [of != "train" for of in parts], groups)
        if self.scheme == "cv70" and groups is not None:
            return cv70_of_groups(population, groups)
        return super().make_splits(population, rows)


def _warn_of_shared_groups(groups: list[str], parts: list[str]) -> None:
    found: dict[str, set[str]] = {}
    for group, part in zip(groups, parts, strict=bool(groups)):
        found.setdefault(group, set()).add(part)
    if shared := [f"{group} ({', '.join(sorted(inside))})" for group, inside in found.items() if len(inside) > 1]:
        rank_zero_warn(f"Groups of photos are in several parts of the split: {first_few(shared)}.")


def _division(photos: ImageFolderDataset, scheme: str) -> str:
    """How photos are divided, by the parts that there are."""
    by_table = photos.found is not None and photos.found.parts is not None
    groups = "groups stay together: " if photos.table.kept_together is not None else ""
    if scheme == "few":
        return (
            "classes are too small for four folds; 30 % of the photos of each class are drawn for the test, and of the "
            "others a fifth for validation, at least one each"
        )
    if not photos.parts:
        each = "of the photos" if groups else "of the photos of each class"
        return f"{groups}30 % {each} are drawn for the test, and of the others a fold for validation"
    if len(photos.parts) == len(PARTS):
        says = "the table says" if by_table else "the folders say"
        return f"{says} which photos are for training, validation and test"
    test, train = (photos.parts[-1], "train") if by_table else (f"{photos.parts[-1]}/", "train/")
    return f"{groups}{test} is the test part, and of {train} a fold is drawn for validation"
