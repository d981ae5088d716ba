"""The data module of CUB-200-2011."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from protometry.datamodules.arguments import check_choice
from protometry.datamodules.cub200.concepts import FIXED, FIXED_FROM, Selection
from protometry.datamodules.cub200.dataset import Cub200Dataset
from protometry.datamodules.cub200.rows import ARCHIVES, OFFICIAL_CLASSES, OFFICIAL_TRAIN_TEST, REMEDY
from protometry.datamodules.photos.data_module import PhotoDataModule
from protometry.datamodules.splits import Scheme
from protometry.datamodules.transforms.crop_and_augment import Crop
from protometry.run_folder.settings import Effect


class Cub200(PhotoDataModule):
    """CUB-200-2011 (Wah et al. 2011), or its first classes.

    Args:
        root: the folder ``CUB_200_2011`` or the one that holds it; only read.
        classes: keep the first classes only; all if None.
        scheme: ``cv70`` (70/30, four folds; Schlinge et al. 2025) or the ``official`` train and test lists, with a
            fifth of each class's training photos as the validation part of fold 0.
        crop: ``box`` cuts photos to the bounding box.
        concept_selection: ``fixed`` (the 112 of Koh et al. 2020), ``vote`` (their rule) or ``all`` attributes.
        concept_level: ``class`` gives every photo its class's concepts, ``image`` its own annotations.
        download: fetch the archives if ``root`` is missing or empty.
        photos: the other arguments of :class:`.PhotoDataModule`.

    Raises:
        ValueError: if an argument is out of range.
    """

    title = "CUB-200-2011"
    remedy = REMEDY
    archives = ARCHIVES
    official_images = sum(OFFICIAL_TRAIN_TEST)

    def __init__(  # noqa: PLR0913 - one flat list, so that every knob is one flag
        self,
        root: str,
        classes: int | None = None,
        scheme: Scheme = "cv70",
        crop: Crop = "none",
        concept_selection: Selection = "fixed",
        concept_level: Literal["class", "image"] = "class",
        download: Annotated[bool, Effect.NONE] = False,
        **photos: Any,
    ) -> None:
        check_choice("scheme", scheme, ("cv70", "official"))
        check_choice("concept_selection", concept_selection, ("fixed", "vote", "all"))
        check_choice("concept_level", concept_level, ("class", "image"))
        self.scheme, self.crop, self.download = scheme, crop, download
        super().__init__(root, **photos)
        self.classes = classes
        self.concept_selection: Selection = concept_selection
        self.concept_level: Literal["class", "image"] = concept_level
        self.promised_classes = min(classes or OFFICIAL_CLASSES, OFFICIAL_CLASSES)
        self.promised_concepts = {"fixed": len(FIXED), "all": FIXED_FROM}.get(concept_selection)

    @property
    def num_concepts(self) -> int:
        """Number of concepts; where training photos vote on them, of the split."""
        if self.concept_selection == "vote" and not self.download:
            self.setup()
        return super().num_concepts

    def photo_dataset(self) -> Cub200Dataset:
        """Read every table, the attributes too, and compare them with each other."""
        return Cub200Dataset(self.root, self.classes, self.concept_selection, self.concept_level, self.transform())
