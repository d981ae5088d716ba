"""Consistency of units with object parts: whether a unit finds the same part in nearly all images of its class."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from protometry.metrics.alignment.random_peaks import LEAST_IMAGES, AgainstRandomPeaks
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_tensor
from protometry.metrics.primitives.owned_units import add_at_units, check_owned_units, part_hits


def part_consistency(hits: Tensor, visible: Tensor, threshold: float = 0.8) -> Tensor:
    """Whether a unit finds some part in nearly all its images.

    Source: Huang et al. (2023). A unit is consistent if ``max_j hits_j / visible_j >= threshold``, inclusive, over the
    parts j that were visible at all. Deviation from their code, in which a unit that never met a visible part is not
    consistent: it is undefined.

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


class PartConsistency(AgainstRandomPeaks):
    """Share of units that find some part in nearly all images of their class (higher is better).

    Left and right parts are not merged. The fewer images a class has, the more units find a part in nearly all of them
    by chance, so that the value falls with their number: compare ``lift_over_random_peak``. Not to be confused with
    :class:`protometry.metrics.PartCoverageConsistency`.

    As in the code of Huang et al. (2023), points of parts are cut to whole pixels, and the window counts both of its
    ends: 73 pixels at an image side of 224. Windows of 72 would change about one in sixty verdicts.

    Args:
        least_images: of the class of a unit, with a part in sight, below which the unit is left out; 1 in the paper.

    Inputs:
        random_peaks: ``(B, M, 2)`` int64 pixels (x, y), a random one for each owned unit.

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
    random_hits: Tensor

    def __init__(
        self,
        num_units: int,
        num_parts: int,
        image_size: tuple[int, int] = (224, 224),
        half_width: int = 36,
        threshold: float = 0.8,
        least_images: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_units, least_images, **kwargs)
        self.image_size = image_size
        self.half_width = half_width
        self.threshold = threshold
        for state in ("hits", "visible", "random_hits"):
            self.add_state(state, torch.zeros(num_units, num_parts, dtype=torch.int64), dist_reduce_fx="sum")

    def update(
        self,
        owned_ids: Tensor,
        owned_peaks: Tensor,
        part_locations: Tensor,
        part_visible: Tensor,
        random_peaks: Tensor | None = None,
    ) -> None:
        check_owned_units(owned_ids, owned_peaks, part_locations, part_visible, len(self.hits))
        parts = (part_locations, part_visible, self.image_size, self.half_width)
        owned, visible = (owned_ids >= 0)[:, :, None], part_visible[:, None]
        if self._is_control(random_peaks, "random_peaks", owned_peaks):
            random_hits = part_hits(random_peaks, *parts) & owned
            self.random_hits = add_at_units(self.random_hits, owned_ids, random_hits)
        self.hits = add_at_units(self.hits, owned_ids, part_hits(owned_peaks, *parts) & owned)
        self.visible = add_at_units(self.visible, owned_ids, visible & owned)
        self.images = add_at_units(self.images, owned_ids, (visible & owned).any(dim=2))

    def values(self) -> Tensor:
        return part_consistency(self.hits, self._enough(self.visible), self.threshold)

    def control_values(self) -> Tensor:
        return part_consistency(self.random_hits, self._enough(self.visible), self.threshold)


CONSISTENCY = MetricEntry(
    "alignment/consistency",
    PartConsistency,
    Words(
        question="Does a unit have one part next to its peak in the images of its class?",
        name="Consistency",
        formula="share of units that have one part in their window on at least 80 % of the images of their class",
        source="[H23]",
        misread="It falls with the number of images per class (`images_per_unit`), for random peaks, too: compare "
        "`lift_over_random_peak`, and values on equally many images only. A unit next to a part counts; at 64 px the "
        "window is a third of the image wide. The paper crops images to the box.",
        finding="{value} of the units mark the same part of the object in the images of their class.",
    ),
    lambda facts: PartConsistency(
        len(facts.active), facts.num_parts, facts.image_size, facts.half_width, least_images=LEAST_IMAGES
    ),
    needs=("part_points", "single_label"),
    whole_split=True,
)
