"""Units of the class of an image: the object parts they find, and sums over their slots."""

from __future__ import annotations

from torch import Tensor

from protometry.metrics.primitives.boxes import points_in_boxes, window_boxes
from protometry.metrics.primitives.checks import check_ids, check_tensor


def check_owned_units(
    owned_ids: Tensor, owned_peaks: Tensor, part_locations: Tensor, part_visible: Tensor, num_units: int
) -> None:
    """Refuse a record whose owned units and parts do not fit together, with a ``ValueError``."""
    check_ids("owned_ids", owned_ids, ("B", "M"), num_units)
    check_tensor("owned_peaks", owned_peaks, (*owned_ids.shape, 2), "int64")
    check_tensor("part_visible", part_visible, (owned_ids.shape[0], "N"), "bool")
    check_tensor("part_locations", part_locations, (*part_visible.shape, 2), "float")


def part_hits(
    peaks: Tensor, part_locations: Tensor, part_visible: Tensor, image_size: tuple[int, int], half_width: int
) -> Tensor:
    """``(B, M, N)`` bool, the visible parts in the window around each of the ``(B, M, 2)`` peaks.

    Source: the code of Huang et al. (2023), which cuts the points of parts to whole pixels and counts both ends of the
    window: at 224 pixels 73 of them, and not 72, which real numbers and 36 pixels on either side would give.
    """
    return points_in_boxes(part_locations, window_boxes(peaks, image_size, half_width)) & part_visible[:, None]


def add_at_units(counts: Tensor, unit_ids: Tensor, values: Tensor) -> Tensor:
    """``(U, ...)`` counts plus ``(B, M, ...)`` bool values of the units ``(B, M)``, False in empty slots."""
    return counts.index_add(0, unit_ids.clamp(min=0).flatten(), values.long().flatten(0, 1))
