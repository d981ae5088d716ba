"""Facts of a model and a data set that decide which metrics of a suite apply and how they are built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from protometry.metrics.primitives.variants import Variant

_USED_WEIGHT = 1e-5  # PIP-Net: a unit is used by the head if some class gives it a larger weight


_MASKED_AS = {"leg": "foot"}  # group of points -> part of a label map, where the words differ


@dataclass(frozen=True)
class Facts:
    """Facts of a model and a data set.

    Args:
        multi_label: whether the data are multilabel.
        units: the model's :class:`~protometry.lightning_modules.contract.UnitTable`, without vectors if units are
            classes: weights of a class are not a prototype.
        tables: the data's :class:`~protometry.datamodules.sample.ClassTables`, without what is about other classes than
            the model's.
        missing: for the name of an optional field of the data set, None if it is there, else the reason.
        asked: keys that are built from these facts; empty for all.
        channels: D of the latent, or None.
        image_size: ``(H, W)`` pixels.
        explained: None if the explainer explains units of this model, else why not.
        abstains: whether the model may leave an image undecided.
        threshold: logit above which a label of multilabel data is predicted.
        residual: whether a part of the logits comes from outside the units.
        context: whether the head reads more of an image than its scores, so that there is no weight matrix although
            units add up.
        unit_concepts: ``(U,)`` int64, the concept of each active unit, -1 for none: as in ``units`` or, for units
            without a name, the concept their scores predict best on the training images. None if units stand for no
            concepts.
        concept_order: ``(L,)`` int64, the concepts by how many training images have them, or None if not counted.
        own_values: what a corrected concept becomes by the model, or None if its concepts cannot be corrected.
        percentiles: whether the model knows the percentiles that a corrected concept may become.
        training: None if the training images of the model are at hand, else why not.
        class_parts: ``(K, N)`` int64, the variant of each part in each class, or None.
        removable_parts: names of the parts that can be taken away.
        class_unexplained: None if the explanations of classes that parts are judged by suit the model, else why not.
        part_shares: whether parts are important by their share of an explanation, and not by being covered.
        decides_by_tree: whether the units are nodes of a tree.
        has_backbone: whether the model has parameters below its units that can be drawn again.
        stages: number of stages of the backbone that hold weights.
        exchange: None if foreign patches can take the place of the units, else why not.
        stamp: the :class:`~protometry.datamodules.shortcut.Stamp` of the training images, or None.
    """

    num_classes: int
    multi_label: bool
    units: Any
    tables: Any
    missing: Callable[[str], str | None]
    asked: frozenset[str] = frozenset()
    channels: int | None = None
    image_size: tuple[int, int] = (224, 224)
    explained: str | None = None
    variant: Variant = "paper"
    abstains: bool = False
    threshold: float = 0.0
    residual: bool = False
    context: bool = False
    unit_concepts: Tensor | None = None
    concept_order: Tensor | None = None
    own_values: str | None = None
    percentiles: bool = False
    training: str | None = None
    class_parts: Tensor | None = None
    removable_parts: tuple[str, ...] = ()
    class_unexplained: str | None = None
    part_shares: bool = True
    decides_by_tree: bool = False
    has_backbone: bool = True
    stages: int = 0
    exchange: str | None = None
    stamp: Any = None

    @property
    def active(self) -> Tensor:
        """``(U,)`` bool, the model's active units."""
        active: Tensor = self.units.active
        return active

    @property
    def weight(self) -> Tensor | None:
        """``(K, U)`` float head weights, or None."""
        weight: Tensor | None = self.units.weight
        return weight

    @property
    def num_parts(self) -> int:
        """N."""
        return len(self.tables.part_names)

    @property
    def part_groups(self) -> list[list[int]] | None:
        """Parts by group, to merge for purity: of groups [0, 1, 0] parts [[0, 2], [1]]."""
        if self.tables.part_to_group is None:
            return None
        groups = self.tables.part_to_group.tolist()
        return [[part for part, group in enumerate(groups) if group == one] for one in sorted(set(groups))]

    @property
    def part_codes(self) -> list[Sequence[int]]:
        """For each group of parts its codes in a label map, none for a group without a mask."""
        names, codes = self.tables.part_group_names, self.tables.label_map_codes
        return [codes.get(_MASKED_AS.get(name, name), ()) for name in names]

    @property
    def half_width(self) -> int:
        """Half the width of the window around a peak: 36 pixels at a height of 224."""
        return round(36 * self.image_size[0] / 224)

    @property
    def features(self) -> Tensor:
        """``(K, U)`` float head weights of a model that has them, 0 for units that are not active."""
        assert self.weight is not None
        return self.weight.masked_fill(~self.active, 0)

    @property
    def used(self) -> Tensor:
        """``(U,)`` bool, active units with a weight in the head."""
        if self.weight is None:
            return self.active
        return self.active & (self.weight.amax(dim=0) > _USED_WEIGHT)

    @property
    def concept_units(self) -> Tensor:
        """``(U,)`` bool, the active units that stand for a concept by the model itself."""
        concepts: Tensor | None = self.units.concepts
        return torch.zeros_like(self.active) if concepts is None else self.active & (concepts >= 0)

    @property
    def named(self) -> Tensor:
        """``(M,)`` int64, the active units that stand for a concept, in ascending order."""
        concepts = self._unit_concepts
        return (self.active & (concepts >= 0)).nonzero().squeeze(1)

    @property
    def concept_points(self) -> Tensor:
        """``(M, S)`` int64, the points of the part that each named unit's concept is about, padded with -1."""
        groups: Sequence[Sequence[int]] = self.part_groups or ()
        sides = max([1, *map(len, groups)])
        rows = [[*group, *[-1] * (sides - len(group))] for group in groups]
        table = torch.tensor([*rows, [-1] * sides], device=self.active.device)  # the last row stands for no part
        return table[self.concept_groups]

    @property
    def concept_groups(self) -> Tensor:
        """``(M,)`` int64, the group of parts that each named unit's concept is about, -1 for none."""
        concepts, part = self._unit_concepts[self.named], self.tables.concept_to_part
        return torch.full_like(concepts, -1) if part is None else part[concepts]

    @property
    def concept_masks(self) -> Tensor:
        """``(M,)`` int64, as ``concept_groups``, -1 also for a part without a mask."""
        masked = torch.tensor([*map(bool, self.part_codes), False], device=self.active.device)
        groups = self.concept_groups
        return groups.masked_fill(~masked[groups], -1)

    @property
    def removable_part_of_concepts(self) -> Tensor:
        """``(L,)`` int64, the removable part that each concept is about, -1 for none."""
        groups = self.tables.concept_to_part
        if groups is None:
            return torch.full_like(self.tables.concept_to_group, -1, device=self.active.device)
        names = [_MASKED_AS.get(name, name) for name in self.tables.part_group_names]
        numbers = [self.removable_parts.index(name) if name in self.removable_parts else -1 for name in names]
        return torch.tensor([*numbers, -1], device=self.active.device)[groups.to(self.active.device)]

    @property
    def _unit_concepts(self) -> Tensor:
        return torch.full_like(self.active, -1, dtype=torch.int64) if self.unit_concepts is None else self.unit_concepts

    def unit_groups(self, single: bool = False) -> tuple[Tensor, int]:
        """The group with which each unit is corrected, ``(U,)`` int64 without gaps, -1 for none; how many there are.

        Args:
            single: whether every unit is a group of its own.
        """
        concepts: Tensor = self.units.concepts
        stands = self.concept_units
        groups = self.tables.concept_to_group.to(concepts.device)[concepts.clamp(min=0)]
        groups = torch.arange(len(groups), device=groups.device) if single else groups
        numbers: Tensor = torch.unique(groups.masked_fill(~stands, -1), return_inverse=True)[1]
        numbers = numbers - (~stands).any().long()
        return numbers, int(numbers.max()) + 1
