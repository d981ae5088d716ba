"""NICO (He et al. 2021): animals in about ten contexts each, with a shift of background between training and test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from datamodules import splits
from datamodules.nico.files import (
    REMEDY,
    Look,
    find_folder,
    look_at_photos,
    read_classes,
    read_photos,
    warn_left_alone,
)
from datamodules.nico.hsv_rule import GROUPS, Group
from datamodules.photos.data_module import PhotoDataModule, PhotoTable
from datamodules.photos.files import ImageFile, Problems

FOLDS = 4


@dataclass(frozen=True, kw_only=True)
class NicoPhotos(PhotoTable):
    """The photos with what the folders and the colours say.

    Args:
        context_names: names of the contexts of all classes.
        groups: group of the HSV rule of each photo.
    """

    context_names: list[str]
    groups: list[Group]


class Nico(PhotoDataModule):
    """NICO as it was unpacked: ``<class>/<context>/<image>``.

    Photos that do not decode and files that are no jpg, jpeg or png are listed in a warning, left out and left alone.
    Every photo is decoded once, and the result remembered in the cache folder.

    Args:
        root: the folder of the classes, or the one that holds it; only read.
        scheme: ``hsv`` (Schlinge et al. 2025): photos before a pale background are the test set, the others are divided
            into four stratified folds, see :mod:`datamodules.nico.hsv_rule`; ``cv70`` ignores colours.
        variant: ``quanproto`` also leaves out the files the published pipeline deletes: extensions in upper case and
            modes other than RGB, L and RGBA in files that are not PNG.
        photos: the other arguments of :class:`.PhotoDataModule`; ``val_fraction`` has no meaning here
            and ``verify`` none either, because colours need every pixel.

    Raises:
        ValueError: if an argument is out of range.
    """

    title = "NICO"
    remedy = REMEDY

    def __init__(
        self,
        root: str,
        scheme: Literal["hsv", "cv70"] = "hsv",
        variant: Literal["paper", "quanproto"] = "paper",
        **photos: Any,
    ) -> None:
        super().__init__(root, "cv70", **photos)
        if scheme not in ("hsv", "cv70"):
            raise ValueError(f"Expected argument `scheme` to be 'hsv' or 'cv70', but got {scheme!r}.")
        if variant not in ("paper", "quanproto"):
            raise ValueError(f"Expected argument `variant` to be 'paper' or 'quanproto', but got {variant!r}.")
        self.scheme = scheme
        self.variant = variant
        self.verify = "none"  # reading the table has decoded every photo

    @property
    def class_names(self) -> list[str]:
        """The class folders in alphabetic order."""
        return self._table.class_names if self._table else read_classes(self.root)

    @property
    def context_names(self) -> list[str]:
        """Names of the contexts of all classes, in alphabetic order; ``context`` is an index into them."""
        self.setup()
        return self._nico.context_names

    @property
    def groups(self) -> dict[str, Group]:
        """Sample id -> group of the HSV rule."""
        self.setup()
        return {file.sample_id: group for file, group in zip(self._nico.files, self._nico.groups, strict=True)}

    def table(self) -> NicoPhotos:
        """Read the folders and look at every photo."""
        folder = find_folder(self.root)
        class_names = read_classes(self.root)
        names = read_photos(folder)
        looks = dict(zip(names, look_at_photos(folder, names, self.num_workers), strict=True))
        warn_left_alone(folder, [name for name, look in looks.items() if look.group is None], "do not decode")
        kept = {name: look.group for name, look in looks.items() if look.group and self._keeps(look)}
        labels = [class_names.index(name.split("/")[0]) for name in kept]
        problems = Problems(f"NICO in {folder}", "Replace the photos that do not decode, or move the folder away.")
        for label in sorted(set(range(len(class_names))) - set(labels)):
            problems.wrong(f"class {class_names[label]!r} has 0 photos that can be used")
        problems.raise_any()
        contexts = [name.split("/")[1] for name in kept]
        context_names = sorted(set(contexts))
        return NicoPhotos(
            dataset="nico",
            folder=folder,
            class_names=class_names,
            files=[ImageFile(name, folder / name) for name in kept],
            labels=np.array(labels, dtype=np.int64),
            contexts=np.array([context_names.index(name) for name in contexts], dtype=np.int64),
            context_names=context_names,
            groups=list(kept.values()),
        )

    def make_splits(self, population: splits.Population, rows: NDArray[np.int64]) -> splits.Splits:
        """Divide by colour, or 70/30.

        Args:
            population: ids and strata of all photos that are not excluded.
            rows: their indices into the table.

        Raises:
            ValueError: if no photo is pale, or a class has too few that are not.
        """
        if self.scheme == "cv70":
            return splits.cv70(population, self.split_seed)
        groups = [self._nico.groups[row] for row in rows]
        test = [name for name, group in zip(population.ids, groups, strict=True) if group == "pale"]
        if not test:
            counts = {group: groups.count(group) for group in GROUPS}
            raise ValueError(
                f"Expected argument `scheme` to be 'cv70' because no photo has a pale background, but got 'hsv' for "
                f"{counts}."
            )
        held_out = set(test)
        pairs = [pair for pair in zip(population.ids, population.strata, strict=True) if pair[0] not in held_out]
        ids, strata = [name for name, _ in pairs], [stratum for _, stratum in pairs]
        population.require_per_class(FOLDS, ids, "whose background is not pale, as `scheme: hsv` needs")
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=self.split_seed).split(ids, strata)
        val = [[ids[position] for position in part] for _, part in folds]
        return splits.given(population, "hsv", self.split_seed, test, val)

    @property
    def _nico(self) -> NicoPhotos:
        return cast(NicoPhotos, self.photos)

    def _keeps(self, look: Look) -> bool:
        return look.published or self.variant == "paper"
