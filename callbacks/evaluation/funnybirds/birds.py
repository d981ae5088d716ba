"""Images of birds composed of parts, for an evaluation that removes parts and background objects."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from protometry.datamodules.bird_parts import InterventionDataset
from protometry.metrics.functional import target_pairs

# Plain background must stay what it is, but for the shadow of a part: 0.1 % of the pixels at most in the rendered files
# of FunnyBirds, while it is 2 % and more between two images.
_MARGIN, _SAME_COLOR, _MOST_CHANGED = 4, 8 / 255, 0.01


class Intervened(InterventionDataset, Protocol):
    """A data set with interventions and the list of its sample ids."""

    sample_ids: list[str]


@dataclass(frozen=True)
class Birds:
    """The images of a split, with the means to take parts and objects away.

    Args:
        codes: codes of every part in label maps, in the order of the parts.
    """

    data: Intervened
    codes: list[tuple[int, ...]]

    @cached_property
    def names(self) -> list[str]:
        """The N parts."""
        return list(self.data.parts)

    @cached_property
    def class_parts(self) -> Tensor:
        """``(K, N)`` int64, the variant of each part in each class."""
        return torch.tensor([[parts[name] for name in self.names] for parts in self.data.classes])

    @cached_property
    def pairs(self) -> tuple[Tensor, Tensor]:
        """``(K, 2)`` int64 and ``(K, 2, N)`` bool, see :func:`protometry.metrics.functional.target_pairs`."""
        return target_pairs(self.class_parts)

    def rows(self, sample_ids: list[str]) -> list[int]:
        """The index of every image."""
        return [self._index[name] for name in sample_ids]

    def present(self, i: int) -> list[bool]:
        """Which parts image ``i`` was drawn with."""
        there = self.data.present(i)
        return [name in there for name in self.names]

    def without(self, i: int, code: int) -> Tensor:
        """``(H, W, 3)`` uint8, the image with the parts of a subset only."""
        gone = [name for j, name in enumerate(self.names) if not code >> j & 1 and name in self.data.present(i)]
        return torch.as_tensor(self.data.intervene(i, drop=gone))

    def without_object(self, i: int, index: int) -> Tensor:
        """``(H, W, 3)`` uint8, the image without a background object."""
        return torch.as_tensor(self.data.intervene(i, drop_background=(index,)))

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.data.sample_ids)}


def find_birds(datamodule: Any, split: str) -> Birds | None:
    """The birds of a split; None for other data, or for classes the model was not trained on."""
    data = datamodule.dataset(split)
    if datamodule.loading.classes is not None or not isinstance(data, InterventionDataset):
        return None
    return Birds(cast(Intervened, data), [tuple(datamodule.tables.label_map_codes[part]) for part in data.parts])


def plain_background(label_map: Tensor) -> Tensor:
    """``(B, H, W)`` bool, pixels of plain background with nothing near that could cast a shadow."""
    there = (label_map > 0).float()[:, None]
    return F.max_pool2d(there, 2 * _MARGIN + 1, stride=1, padding=_MARGIN)[:, 0] == 0


def other_background(changed: Tensor, clean: Tensor, background: Tensor) -> Tensor:
    """Which images do not show the background of the image they were made from; none where it shows too little of it.

    Args:
        changed: ``(B, 3, H, W)`` float in [0, 1].
        clean: the images they were made from.
        background: ``(B, H, W)`` bool, see :func:`plain_background`.

    Returns:
        ``(B,)`` bool.
    """
    differs = ((changed - clean).abs().amax(dim=1) > _SAME_COLOR) & background
    share: Tensor = differs.sum(dim=(1, 2)) / background.sum(dim=(1, 2))
    return share > _MOST_CHANGED
