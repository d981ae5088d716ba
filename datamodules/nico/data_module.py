"""The data module of NICO, with its division by the colours of the background."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from protometry.datamodules import splits
from protometry.datamodules.arguments import check_choice
from protometry.datamodules.nico.dataset import NicoDataset
from protometry.datamodules.nico.files import REMEDY
from protometry.datamodules.nico.hsv_rule import GROUPS
from protometry.datamodules.photos.data_module import PhotoDataModule


class Nico(PhotoDataModule):
    """NICO (He et al. 2021) in its original layout: ``<class>/<context>/<image>``.

    Photos that do not decode and files that are not jpg, jpeg or png are listed in a warning, left out and left alone.
    ``variant: quanproto`` also leaves out the files that the published pipeline deletes, see :class:`.NicoDataset`.

    Args:
        root: the folder of the classes, or the one that holds it; only read.
        scheme: ``hsv`` (Schlinge et al. 2025): photos before a pale background are the test set, the others are divided
            into four stratified folds, see :mod:`protometry.datamodules.nico.hsv_rule`; ``cv70`` ignores colours.
        photos: the other arguments of :class:`.PhotoDataModule`; ``verify`` has no meaning here, because colours need
            every pixel.

    Raises:
        ValueError: if an argument is out of range.
    """

    title = "NICO"
    remedy = REMEDY
    official_images = 12_980

    def __init__(self, root: str, scheme: Literal["hsv", "cv70"] = "hsv", **photos: Any) -> None:
        check_choice("scheme", scheme, ("hsv", "cv70"))
        super().__init__(root, **photos)
        self.scheme = scheme
        self.verify = "none"  # reading the table has decoded every photo

    def photo_dataset(self) -> NicoDataset:
        """Read the folders and look at every photo."""
        return NicoDataset(self.root, self.variant, self.num_workers, self.transform())

    def make_splits(self, population: splits.Population, rows: NDArray[np.int64]) -> splits.Splits:
        """Divide by colour, or 70/30.

        Raises:
            ValueError: if no photo is pale, or a class has too few that are not.
        """
        if self.scheme == "cv70":
            return splits.cv70(population)
        photos = self.photos
        assert isinstance(photos, NicoDataset)
        from sklearn.model_selection import StratifiedKFold  # slow to import, and few runs need it

        groups = [photos.table.groups[row] for row in rows]
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
        population.require_per_class(splits.FOLDS, ids, "whose background is not pale, as `scheme: hsv` needs")
        folds = StratifiedKFold(splits.FOLDS, shuffle=True, random_state=splits.SEED).split(ids, strata)
        val = [[ids[position] for position in part] for _, part in folds]
        return splits.given(population, "hsv", splits.SEED, test, val)
