"""Facts of a model and a data set that decide which metrics of a suite apply and how they are built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from protometry.metrics.primitives.variants import Variant

_USED_WEIGHT = 1e-5  # PIP-Net: a unit is used by the head if some class gives it a larger weight


@dataclass(frozen=True)
class Facts:
    """Facts of a model and a data set.

    Args:
        multi_label: whether the data are multilabel.
        active: ``(U,)`` bool, the model's active units.
        owner: ``(U, K)`` bool.
        missing: for the name of an optional field of the data set, None if it is there, else the reason.
        asked: keys that are built from these facts; empty for all.
        weight: ``(K, U)`` float head weights, or None.
        vectors: ``(U, D)`` float unit vectors, or None.
        channels: D of the latent, or None.
        part_groups: parts to merge for purity, or None.
        explained: None if the explainer explains units of this model, else why not.
        abstains: whether the model may leave an image undecided.
        residual: whether a part of the logits comes from outside the units.
        threshold: logit above which a label of multilabel data is predicted.
        presence: ``(K, U)`` bool assignment of shared units to classes, or None.
        concepts: ``(U,)`` int64, the concept of each unit, -1 for none, or None if the units have no names.
        class_concepts: ``(K, L)`` float in 0..1, strength of every concept in every class, or None.
        class_concepts_binary: ``(K, L)`` bool, or None.
        class_attributes: ``(K, A)`` float in 0..1, all attributes, before L concepts were selected, or None.
        concept_to_part: ``(L,)`` int64, the group of parts each concept is about, -1 for none, or None.
        unit_concepts: ``(U,)`` int64, the concept of each active unit, -1 for none: as in ``concepts`` or, for units
            without a name, the concept their scores predict best on the training images. None if units stand for no
            concepts.
        nameable: whether units stand for concepts or, being prototypes or features, may be named by one.
        concept_order: ``(L,)`` int64, the concepts by how many training images have them, or None if not counted.
        part_codes: for each group of parts its codes in a label map, none for a group without a mask.
        concept_to_group: ``(L,)`` int64, concepts with one number are corrected together, or None.
        own_values: what a corrected concept becomes by the model, or None if its concepts cannot be corrected.
        percentiles: whether the model knows the percentiles that a corrected concept may become.
        training: None if the training images of the model are at hand, else why not.
        class_parts: ``(K, N)`` int64, the variant of each part in each class, or None.
        part_shares: whether parts are important by their share of an explanation, and not by being covered.
        decides_by_tree: whether the units are nodes of a tree.
        by_cell: whether the units are classes, whose evidence lies in the cells of their maps.
    """

    num_classes: int
    multi_label: bool
    active: Tensor
    owner: Tensor
    missing: Callable[[str], str | None]
    asked: frozenset[str] = frozenset()
    weight: Tensor | None = None
    vectors: Tensor | None = None
    channels: int | None = None
    image_size: tuple[int, int] = (224, 224)
    num_parts: int = 0
    part_groups: Sequence[Sequence[int]] | None = None
    explained: str | None = None
    variant: Variant = "paper"
    abstains: bool = False
    threshold: float = 0.0
    residual: bool = False
    presence: Tensor | None = None
    concepts: Tensor | None = None
    class_concepts: Tensor | None = None
    class_concepts_binary: Tensor | None = None
    class_attributes: Tensor | None = None
    concept_to_part: Tensor | None = None
    unit_concepts: Tensor | None = None
    nameable: bool = False
    concept_order: Tensor | None = None
    part_codes: Sequence[Sequence[int]] = ()
    concept_to_group: Tensor | None = None
    own_values: str | None = None
    percentiles: bool = False
    training: str | None = None
    class_parts: Tensor | None = None
    part_shares: bool = True
    decides_by_tree: bool = False
    by_cell: bool = False

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
        concepts = self._unit_concepts[self.named]
        return torch.full_like(concepts, -1) if self.concept_to_part is None else self.concept_to_part[concepts]

    @property
    def concept_masks(self) -> Tensor:
        """``(M,)`` int64, as ``concept_groups``, -1 also for a part without a mask."""
        masked = torch.tensor([*map(bool, self.part_codes), False], device=self.active.device)
        groups = self.concept_groups
        return groups.masked_fill(~masked[groups], -1)

    @property
    def _unit_concepts(self) -> Tensor:
        return torch.full_like(self.active, -1, dtype=torch.int64) if self.unit_concepts is None else self.unit_concepts

    def unit_groups(self, single: bool = False) -> tuple[Tensor, int]:
        """The group with which each unit is corrected, ``(U,)`` int64 without gaps, -1 for none; how many there are.

        Args:
            single: whether every unit is a group of its own.
        """
        assert self.concepts is not None
        assert self.concept_to_group is not None
        stands = self.active & (self.concepts >= 0)
        groups = self.concept_to_group[self.concepts.clamp(min=0)]
        groups = torch.arange(len(groups), device=groups.device) if single else groups
        numbers: Tensor = torch.unique(groups.masked_fill(~stands, -1), return_inverse=True)[1]
        numbers = numbers - (~stands).any().long()
        return numbers, int(numbers.max()) + 1
