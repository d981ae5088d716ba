"""Diversity of the units of a class: at how many different object parts they point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from protometry.metrics.alignment.part_groups import checked_groups, merge_parts
from protometry.metrics.alignment.random_peaks import LEAST_IMAGES, AgainstRandomPeaks
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_tensor
from protometry.metrics.primitives.owned_units import add_at_units, check_owned_units, part_hits


def nearest_parts(
    peaks: Tensor, part_locations: Tensor, part_visible: Tensor, image_size: tuple[int, int], half_width: int
) -> Tensor:
    """``(B, M, N)`` bool, of the visible parts in the window around each of the ``(B, M, 2)`` peaks the nearest one."""
    hits = part_hits(peaks, part_locations, part_visible, image_size, half_width)
    offsets = part_locations.double()[:, None] - peaks.double()[:, :, None]
    distances = offsets.square().sum(dim=3).masked_fill(~hits, torch.inf)
    nearest = torch.nn.functional.one_hot(distances.argmin(dim=2), part_visible.shape[1]).bool()
    return nearest & hits


def parts_covered(hits: Tensor, visible: Tensor, owner: Tensor, threshold: float = 0.5) -> Tensor:
    """Number of different parts at which the units of a class point.

    Source: none. A unit points at ``argmax_j hits_j / visible_j`` over the parts j that were visible at all (the first
    on ties), if that share reaches the threshold, and at no part otherwise.

    Args:
        hits: ``(U, N)`` int64, images of the unit's classes on which part j is the one nearest to its peak.
        visible: ``(U, N)`` int64, images of the unit's classes in which the part is visible.
        owner: ``(U, K)`` bool, active units of each class.
        threshold: share of images, inclusive.

    Returns:
        ``(K,)`` float64 counts, higher is better; NaN for a class whose units never met a visible part.
    """
    check_tensor("hits", hits, ("U", "N"), "int64")
    check_tensor("visible", visible, tuple(hits.shape), "int64")
    check_tensor("owner", owner, (hits.shape[0], "K"), "bool")
    met = visible > 0
    share, part = (hits.double() / visible).masked_fill(~met, -1).max(dim=1)
    pointed = torch.nn.functional.one_hot(part, hits.shape[1]) * (share >= threshold)[:, None]
    covered = (owner.double().T @ pointed.double() > 0).sum(dim=1).double()
    return covered.masked_fill(~(owner & met.any(dim=1, keepdim=True)).any(dim=0), torch.nan)


class PartsCovered(AgainstRandomPeaks):
    """Mean over classes of the number of different parts at which their units point (higher is better).

    On an image a unit is at the visible part nearest to its peak, if one lies in the window. On few images, chance
    puts it at the same part in half of them: compare ``lift_over_random_peak``.

    Args:
        least_images: of the classes of a unit, with a part in sight, below which the unit is left out.

    Inputs:
        random_peaks: ``(B, M, 2)`` int64 pixels (x, y), a random one for each owned unit.

    Example:
        >>> metric = PartsCovered(torch.ones(2, 1, dtype=torch.bool), num_parts=2)
        >>> points, peaks = torch.tensor([[[50.0, 50.0], [70.0, 50.0]]]), torch.tensor([[[51, 50], [55, 50]]])
        >>> metric.update(torch.tensor([[0, 1]]), peaks, points, torch.ones(1, 2, dtype=torch.bool))
        >>> metric.compute()  # both units are nearest to the first part
        tensor(1., dtype=torch.float64)
    """

    unit = "count"
    averaged_over = "class"
    higher_is_better = True
    owner: Tensor
    hits: Tensor
    visible: Tensor
    random_hits: Tensor

    def __init__(
        self,
        owner: Tensor,
        num_parts: int,
        image_size: tuple[int, int] = (224, 224),
        half_width: int = 36,
        groups: Sequence[Sequence[int]] | None = None,
        least_images: int = 1,
        **kwargs: Any,
    ) -> None:
        check_tensor("owner", owner, ("U", "K"), "bool")
        super().__init__(len(owner), least_images, **kwargs)
        self.groups = checked_groups(groups, num_parts)
        self.image_size = image_size
        self.half_width = half_width
        self.register_buffer("owner", owner.clone(), persistent=False)
        for state in ("hits", "visible", "random_hits"):
            zeros = torch.zeros(len(owner), len(self.groups), dtype=torch.int64)
            self.add_state(state, zeros, dist_reduce_fx="sum")

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
        owned, visible = (owned_ids >= 0)[:, :, None], part_visible[:, None].expand(-1, owned_ids.shape[1], -1)
        if self._is_control(random_peaks, "random_peaks", owned_peaks):
            at_random, _ = merge_parts(nearest_parts(random_peaks, *parts), visible, self.groups)
            self.random_hits = add_at_units(self.random_hits, owned_ids, at_random & owned)
        nearest, visible = merge_parts(nearest_parts(owned_peaks, *parts), visible, self.groups)
        self.hits = add_at_units(self.hits, owned_ids, nearest & owned)
        self.visible = add_at_units(self.visible, owned_ids, visible & owned)
        self.images = add_at_units(self.images, owned_ids, (visible & owned).any(dim=2))

    def values(self) -> Tensor:
        return parts_covered(self.hits, self._enough(self.visible), self.owner)

    def control_values(self) -> Tensor:
        return parts_covered(self.random_hits, self._enough(self.visible), self.owner)


PARTS_COVERED = MetricEntry(
    "alignment/parts_covered",
    PartsCovered,
    Words(
        question="How many parts do the units of a class point at?",
        name="Parts covered",
        formula="mean over classes of the number of different parts at which their units point",
        source="none, window of [H23]",
        misread="At most the number of units of a class, and of parts; units next to the object may still be near a "
        "part, and random peaks are on few images: compare `lift_over_random_peak`.",
    ),
    lambda facts: PartsCovered(
        facts.units.owner & facts.active[:, None],
        facts.num_parts,
        facts.image_size,
        facts.half_width,
        facts.part_groups,
        LEAST_IMAGES,
    ),
    needs=("units", "part_points", "single_label"),
    whole_split=True,
)
