"""Kernel: regularity with which the explanation of a unit covers the same object parts."""

from __future__ import annotations

import torch
from torch import Tensor

from metrics.functional.primitives.boxes import bounding_boxes, points_in_boxes
from metrics.functional.primitives.checks import check_tensor
from metrics.functional.primitives.owned_units import add_at_units
from metrics.functional.primitives.regions import clipped_range
from metrics.functional.primitives.variants import Variant, check_variant


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
    that a part out of sight is no miss; ``variant="quanproto"`` divides by ``shown``. A unit that never covers a part
    scores 0.

    Args:
        hits: ``(U, N)`` int64, images with the unit in the top k whose box of its region holds the visible part.
        visible: ``(U, N)`` int64, images with the unit in the top k in which the part is visible.
        shown: ``(U,)`` int64, images with the unit in the top k and a region that is not empty.
        variant: reading of the formula.

    Returns:
        ``(U,)`` float64 fractions, higher is better; NaN for a unit that never met a visible part.

    Raises:
        ValueError: if a shape or dtype differs from the above or ``variant`` is unknown.

    Example:
        >>> hits, visible = torch.tensor([[3, 1, 0]]), torch.tensor([[4, 2, 4]])
        >>> part_coverage_consistency(hits, visible, torch.tensor([4]))  # (0.75 + 0.5) / 2
        tensor([0.6250], dtype=torch.float64)
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
