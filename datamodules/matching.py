"""Data of other classes than a model was trained on: classes matched by name, images of the others left out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from protometry.datamodules.dataset import ImageDataset, Index
from protometry.datamodules.photos.problems import first_few
from protometry.datamodules.sample import Batch, nfc
from protometry.datamodules.views import Chosen


def plain_name(name: str) -> str:
    """A class name without its number, case and separators.

    Example:
        >>> plain_name("001.Black_footed_Albatross"), plain_name("black-footed albatross")
        ('black footed albatross', 'black footed albatross')
    """
    return " ".join(re.sub(r"[\W_]+", " ", re.sub(r"^\d+\.", "", nfc(name))).casefold().split())


def match_classes(names: Sequence[str], trained: Sequence[str]) -> list[int]:
    """The index of the logit of every class of some data, -1 where the model has none.

    Raises:
        ValueError: if no class matches, or two classes of one side have the same plain name.

    Example:
        >>> match_classes(["Wren", "Heron"], ["001.Jay", "002.Wren"])
        [1, -1]
    """
    for side, given in (("data", names), ("model", trained)):
        plain = [plain_name(name) for name in given]
        if twice := [name for name, text in zip(given, plain, strict=True) if plain.count(text) > 1]:
            raise ValueError(
                f"Expected the classes of the {side} to differ by name, apart from number, case and separators, but "
                f"got {some(twice)}. Rename them."
            )
    index = {plain_name(name): number for number, name in enumerate(trained)}
    indices = [index.get(plain_name(name), -1) for name in names]
    if max(indices, default=-1) < 0:
        raise ValueError(
            "Expected the data to share classes with the model, by name, but got none: the data has "
            f"{some(names)}, the model {some(trained)}. Name the classes as in the data of the run."
        )
    return indices


class Matched(Chosen):
    """The samples of a data set that a model trained on other classes can get right, labelled by its logits.

    Args:
        classes: for each class of the data the index of its logit, or -1 to leave its images out. With several labels
            per image, no image is left out, and every logit must be there.
        multi_label: whether classes are labels and an image may have several.
    """

    def __init__(self, dataset: ImageDataset, classes: Sequence[int], multi_label: bool = False) -> None:
        self.dataset, self.multi_label = dataset, multi_label
        self.classes = np.array(classes, dtype=np.int64)
        kept = np.ones(len(dataset), dtype=bool) if multi_label else self.classes[dataset.labels] >= 0
        self.rows = np.flatnonzero(kept).tolist()

    @property
    def labels(self) -> NDArray[np.int64]:
        """The logits of the samples that are left; with several labels per image, their classes."""
        return super().labels if self.multi_label else self.classes[super().labels]

    def batch(self, indices: Sequence[Index]) -> Batch:
        """Some of the samples that are left, without soft targets, which are over the classes of the data."""
        batch = super().batch(indices)
        batch.pop("class_targets", None)
        if not self.multi_label:
            return {**batch, "label": torch.from_numpy(self.classes)[batch["label"]]}
        column = torch.from_numpy(np.flatnonzero(self.classes >= 0)[np.argsort(self.classes[self.classes >= 0])])
        chosen: Any = {name: batch[name][:, column] for name in ("labels", "label_certainty") if name in batch}
        return {**batch, **chosen}


def some(names: Sequence[str]) -> str:
    """The first few names in quotes, see :func:`.first_few`."""
    return first_few([repr(name) for name in names])
