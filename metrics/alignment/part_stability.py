"""Stability of units: whether a unit finds the same object parts under noise."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from protometry.metrics.base import ItemMean
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_tensor
from protometry.metrics.primitives.owned_units import add_at_units, check_owned_units, part_hits


def part_stability(unchanged: Tensor, total: Tensor) -> Tensor:
    """Share of noisy images on which a unit finds exactly the parts it finds on the clean image.

    Source: Huang et al. (2023): ``unchanged / total``.

    Args:
        unchanged: ``(U,)`` int64, pairs of images and noise draws with equal vectors of parts found.
        total: ``(U,)`` int64, all such pairs.

    Returns:
        ``(U,)`` float64 fractions, higher is better; NaN where ``total`` is 0.
    """
    check_tensor("unchanged", unchanged, ("U",), "int64")
    check_tensor("total", total, tuple(unchanged.shape), "int64")
    return unchanged.double() / total


class PartStability(ItemMean):
    """Mean over units of how often they find the same parts under noise as on the clean image (higher is better).

    Source: Huang et al. (2023), who draw the noise three times: call ``update`` once per draw.

    Two empty vectors are equal: publish ``nonempty_only=True``, which leaves out images on which the unit finds no part
    before the noise, next to the paper's number. ``summary`` adds ``coverage``, the share of images, draws and units
    with a part found before the noise.

    Args:
        nonempty_only: whether the unit has to find a part on the clean image.

    Example:
        >>> metric = PartStability(num_units=1)
        >>> ids, clean = torch.tensor([[0], [0]]), torch.tensor([[[50, 50]], [[50, 50]]])
        >>> noisy = torch.tensor([[[52, 50]], [[150, 50]]])  # the second peak leaves the part at (60, 60)
        >>> metric.update(ids, clean, noisy, torch.full((2, 1, 2), 60.0), torch.ones(2, 1, dtype=torch.bool))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    unit = "fraction"
    averaged_over = "unit"
    higher_is_better = True
    unchanged: Tensor
    total: Tensor
    evaluated: Tensor
    covered: Tensor

    def __init__(
        self,
        num_units: int,
        image_size: tuple[int, int] = (224, 224),
        half_width: int = 36,
        nonempty_only: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.image_size = image_size
        self.half_width = half_width
        self.nonempty_only = nonempty_only
        self.add_state("unchanged", torch.zeros(num_units, dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("total", torch.zeros(num_units, dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("evaluated", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("covered", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(
        self,
        owned_ids: Tensor,
        owned_peaks: Tensor,
        perturbed_owned_peaks: Tensor,
        part_locations: Tensor,
        part_visible: Tensor,
    ) -> None:
        check_owned_units(owned_ids, owned_peaks, part_locations, part_visible, len(self.total))
        check_tensor("perturbed_owned_peaks", perturbed_owned_peaks, tuple(owned_peaks.shape), "int64")
        parts = (part_locations, part_visible, self.image_size, self.half_width)
        clean, noisy = part_hits(owned_peaks, *parts), part_hits(perturbed_owned_peaks, *parts)
        owned = owned_ids >= 0
        evaluated = owned & part_visible.any(dim=1, keepdim=True)
        covered = evaluated & clean.any(dim=2)
        counted = covered if self.nonempty_only else evaluated
        self.unchanged = add_at_units(self.unchanged, owned_ids, (clean == noisy).all(dim=2) & counted)
        self.total = add_at_units(self.total, owned_ids, counted)
        self.evaluated = self.evaluated + evaluated.sum()
        self.covered = self.covered + covered.sum()
        self.dropped = self.dropped + (owned & ~counted).sum()

    def values(self) -> Tensor:
        return part_stability(self.unchanged, self.total)

    def _additions(self) -> dict[str, Any]:
        return {"coverage": float(self.covered.double() / self.evaluated)}


STABILITY = MetricEntry(
    "alignment/stability",
    PartStability,
    Words(
        question="Does it find the same part under noise?",
        name="Stability",
        formula="mean over units of the share of noisy images on which the parts in the window stay the same",
        source="[H23]",
        misread="A unit on the background has no part in its window before and after, and scores 100 %.",
    ),
    lambda facts: PartStability(len(facts.active), facts.image_size, facts.half_width),
    needs=("part_points", "single_label"),
    view="stability",
)
STABILITY_NONEMPTY = MetricEntry(
    "alignment/stability_nonempty",
    PartStability,
    Words(
        question="The same, of the units that found a part at all.",
        name="Stability of units on parts",
        formula="the same over images on which the unit finds a part before the noise",
        source="none, after [H23]",
        misread="`coverage` says how often there is such a part.",
    ),
    lambda facts: PartStability(len(facts.active), facts.image_size, facts.half_width, nonempty_only=True),
    needs=("part_points", "single_label"),
    view="stability",
)
