"""Regularity with which the explanations of a unit cover the same object parts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from protometry.metrics.base import ItemMean
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.boxes import bounding_boxes, points_in_boxes
from protometry.metrics.primitives.checks import check_ids, check_tensor
from protometry.metrics.primitives.owned_units import add_at_units
from protometry.metrics.primitives.regions import clip_saliency, clipped_range
from protometry.metrics.primitives.variants import Variant, check_variant


def part_coverage_counts(
    saliency: Tensor, unit_ids: Tensor, part_locations: Tensor, part_visible: Tensor, num_units: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Counts of hits ``(U, N)``, visible ``(U, N)`` and shown ``(U,)`` in clipped saliency."""
    clipped_range("saliency", saliency)
    regions = saliency > 0
    inside = points_in_boxes(part_locations, bounding_boxes(regions)) & part_visible[:, None]
    selected = (unit_ids >= 0)[:, :, None]
    counts = torch.cat([inside, part_visible[:, None].expand_as(inside), regions.flatten(2).any(2)[:, :, None]], dim=2)
    totals = add_at_units(unit_ids.new_zeros(num_units, counts.shape[2]), unit_ids, counts & selected)
    parts = part_visible.shape[1]
    return totals[:, :parts], totals[:, parts : 2 * parts], totals[:, -1]


def part_coverage_consistency(hits: Tensor, visible: Tensor, shown: Tensor, variant: Variant = "paper") -> Tensor:
    """Mean share of its images in which a unit covers a part, over the parts it ever covers.

    Source: Schlinge et al. (2025), equation 18, after Huang et al. (2023). A part's share is ``hits / visible``, so
    that a part out of sight is not a miss; ``variant="quanproto"`` divides by ``shown``. A unit that never covers a
    part scores 0.

    Args:
        hits: ``(U, N)`` int64, images with the unit in the top k whose box of its region holds the visible part.
        visible: ``(U, N)`` int64, images with the unit in the top k in which the part is visible.
        shown: ``(U,)`` int64, images with the unit in the top k and a region that is not empty.
        variant: reading of the formula.

    Returns:
        ``(U,)`` float64 fractions, higher is better; NaN for a unit that never met a visible part.
    """
    check_variant(variant)
    check_tensor("hits", hits, ("U", "N"), "int64")
    check_tensor("visible", visible, tuple(hits.shape), "int64")
    check_tensor("shown", shown, (hits.shape[0],), "int64")
    images = visible if variant == "paper" else shown[:, None].expand_as(hits)
    covered = hits > 0
    shares = (hits.double() / images).masked_fill(~covered, 0)
    mean = shares.sum(dim=1) / covered.sum(dim=1).clamp(min=1)
    return mean.masked_fill((visible == 0).all(dim=1), torch.nan)


class PartCoverageConsistency(ItemMean):
    """Mean over units of how regularly their explanations cover the same parts (higher is better).

    Of the boxes around the clipped ``saliency``. ``summary`` adds ``images_per_unit``, the mean number of images with
    the unit in the top k, of the units with any. Not to be confused with :class:`protometry.metrics.PartConsistency`.

    Args:
        quantile: of each map, above which positive saliency is kept; None if it is already clipped.

    Example:
        >>> metric = PartCoverageConsistency(num_units=1, num_parts=2, quantile=None)
        >>> points, visible = torch.tensor([[[0.5, 0.5], [1.5, 0.5]]]), torch.tensor([[True, True]])
        >>> metric.update(torch.tensor([[[[1.0, 0.0]]]]), torch.tensor([[0]]), points, visible)
        >>> metric.update(torch.tensor([[[[1.0, 1.0]]]]), torch.tensor([[0]]), points, visible)
        >>> metric.compute()  # parts 2/2 and 1/2
        tensor(0.7500, dtype=torch.float64)
    """

    unit = "fraction"
    averaged_over = "unit"
    higher_is_better = True
    hits: Tensor
    visible: Tensor
    shown: Tensor

    def __init__(
        self,
        num_units: int,
        num_parts: int,
        quantile: float | None = 0.95,
        variant: Variant = "paper",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_variant(variant)
        self.quantile = quantile
        self.variant: Variant = variant
        self.add_state("hits", torch.zeros(num_units, num_parts, dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("visible", torch.zeros(num_units, num_parts, dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("shown", torch.zeros(num_units, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, saliency: Tensor, unit_ids: Tensor, part_locations: Tensor, part_visible: Tensor) -> None:
        num_units, num_parts = self.hits.shape
        check_tensor("saliency", saliency, ("B", "k", "H", "W"), "float")
        check_ids("unit_ids", unit_ids, tuple(saliency.shape[:2]), num_units)
        check_tensor("part_locations", part_locations, (saliency.shape[0], num_parts, 2), "float")
        check_tensor("part_visible", part_visible, (saliency.shape[0], num_parts), "bool")
        clipped = clip_saliency(saliency, self.quantile)
        counted = unit_ids.masked_fill(~saliency.isfinite().flatten(2).all(dim=2), -1)
        hits, visible, shown = part_coverage_counts(clipped, counted, part_locations, part_visible, num_units)
        self.hits = self.hits + hits
        self.visible = self.visible + visible
        self.shown = self.shown + shown
        self.dropped = self.dropped + (counted < 0).sum()

    def values(self) -> Tensor:
        return part_coverage_consistency(self.hits, self.visible, self.shown, self.variant)

    def _additions(self) -> dict[str, Any]:
        return {"images_per_unit": float(self.shown.sum().double() / (self.shown > 0).sum())}


CONSISTENCY = MetricEntry(
    "complexity/consistency",
    PartCoverageConsistency,
    Words(
        question="Does a unit mark the same parts in all images?",
        name="Part coverage consistency",
        formula="mean over units of hits / visible, over parts that a box of the unit ever covers",
        source="[S25] 18",
        misread="Large boxes always cover all parts and score 100 %: random maps, whose boxes are larger, have got "
        "98 % where PRP got 93 %. Compare with `--explainer Random`. It falls with the number of images "
        "(`images_per_unit`), since a part covered once counts: of the quick start, 95 % on 20 and 63 % on 400. Not "
        "the `consistency` of alignment.",
    ),
    lambda facts: PartCoverageConsistency(len(facts.active), facts.num_parts, quantile=None, variant=facts.variant),
    needs=("explainer", "part_points"),
    view="clipped",
)
