"""Consistency of units with object parts: whether a unit finds the same part in nearly all images of its class."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from protometry.metrics.base import ItemMean
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_tensor
from protometry.metrics.primitives.owned_units import add_at_units, check_owned_units, part_hits


def part_consistency(hits: Tensor, visible: Tensor, threshold: float = 0.8) -> Tensor:
    """Whether a unit finds some part in nearly all its images.

    Source: Huang et al. (2023). A unit is consistent if ``max_j hits_j / visible_j >= threshold``, inclusive, over the
    parts j that were visible at all.

    Args:
        hits: ``(U, N)`` int64, images of the unit's class whose visible part lies in the window around its peak.
        visible: ``(U, N)`` int64, images of the unit's class in which the part is visible.
        threshold: share of images.

    Returns:
        ``(U,)`` float64, 1 or 0, higher is better; NaN for a unit that never met a visible part.
    """
    check_tensor("hits", hits, ("U", "N"), "int64")
    check_tensor("visible", visible, tuple(hits.shape), "int64")
    met = visible > 0
    consistent = ((hits.double() / visible >= threshold) & met).any(dim=1)
    return consistent.double().masked_fill(~met.any(dim=1), torch.nan)


class PartConsistency(ItemMean):
    """Share of units that find some part in nearly all images of their class (higher is better).

    Left and right parts are not merged. Not to be confused with :class:`protometry.metrics.PartCoverageConsistency`.

    Example:
        >>> metric = PartConsistency(num_units=2, num_parts=1, image_size=(224, 224))
        >>> ids, peaks = torch.tensor([[0, 1]]), torch.tensor([[[100, 100], [10, 10]]])
        >>> metric.update(ids, peaks, torch.tensor([[[120.0, 110.0]]]), torch.tensor([[True]]))
        >>> metric.compute()  # the first of two units
        tensor(0.5000, dtype=torch.float64)
    """

    unit = "fraction"
    interval = "wilson"
    averaged_over = "unit"
    higher_is_better = True
    hits: Tensor
    visible: Tensor

    def __init__(
        self,
        num_units: int,
        num_parts: int,
        image_size: tuple[int, int] = (224, 224),
        half_width: int = 36,
        threshold: float = 0.8,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.image_size = image_size
        self.half_width = half_width
        self.threshold = threshold
        self.add_state("hits", torch.zeros(num_units, num_parts, dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("visible", torch.zeros(num_units, num_parts, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, owned_ids: Tensor, owned_peaks: Tensor, part_locations: Tensor, part_visible: Tensor) -> None:
        check_owned_units(owned_ids, owned_peaks, part_locations, part_visible, len(self.hits))
        hits = part_hits(owned_peaks, part_locations, part_visible, self.image_size, self.half_width)
        owned = (owned_ids >= 0)[:, :, None]
        self.hits = add_at_units(self.hits, owned_ids, hits & owned)
        self.visible = add_at_units(self.visible, owned_ids, part_visible[:, None] & owned)

    def values(self) -> Tensor:
        return part_consistency(self.hits, self.visible, self.threshold)


CONSISTENCY = MetricEntry(
    "alignment/consistency",
    PartConsistency,
    Words(
        question="Does a unit have one part next to its peak in the images of its class?",
        name="Consistency",
        formula="share of units that have one part in their window on at least 80 % of the images of their class",
        source="[H23]",
        misread="A unit next to a part counts; at 64 px the window is a third of the image wide. The paper crops "
        "images to the box.",
        finding="{value} of the units mark the same part of the object in the images of their class.",
    ),
    lambda facts: PartConsistency(len(facts.active), facts.num_parts, facts.image_size, facts.half_width),
    needs=("part_points", "single_label"),
)
