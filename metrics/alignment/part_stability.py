"""Stability of units: whether a unit finds the same object parts under noise."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from protometry.metrics.alignment.random_peaks import AgainstRandomPeaks
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_tensor
from protometry.metrics.primitives.owned_units import add_at_units, check_owned_units, part_hits

DRAWS = 3  # of the noise


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


class PartStability(AgainstRandomPeaks):
    """Mean over units of how often they find the same parts under noise as on the clean image (higher is better).

    Source: Huang et al. (2023), who draw the noise three times: call ``update`` once per draw.

    Two empty vectors are equal: publish ``nonempty_only=True``, which leaves out images on which the unit finds no part
    before the noise, next to the paper's number. ``summary`` adds ``coverage``, the share of images, draws and units
    with a part found before the noise.

    Args:
        nonempty_only: whether the unit has to find a part on the clean image.

    Inputs:
        random_peaks: ``(B, M, 2)`` int64 pixels (x, y), a random one for each owned unit.
        perturbed_random_peaks: the same, drawn again.

    Example:
        >>> metric = PartStability(num_units=1)
        >>> ids, clean = torch.tensor([[0], [0]]), torch.tensor([[[50, 50]], [[50, 50]]])
        >>> noisy = torch.tensor([[[52, 50]], [[150, 50]]])  # the second peak leaves the part at (60, 60)
        >>> metric.update(ids, clean, noisy, torch.full((2, 1, 2), 60.0), torch.ones(2, 1, dtype=torch.bool))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    draws = DRAWS
    unit = "fraction"
    averaged_over = "unit"
    higher_is_better = True
    unchanged: Tensor
    total: Tensor
    random_unchanged: Tensor
    random_total: Tensor
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
        super().__init__(num_units, **kwargs)
        self.image_size = image_size
        self.half_width = half_width
        self.nonempty_only = nonempty_only
        for state in ("unchanged", "total", "random_unchanged", "random_total"):
            self.add_state(state, torch.zeros(num_units, dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("evaluated", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("covered", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(  # noqa: PLR0913 - peaks, parts and the control
        self,
        owned_ids: Tensor,
        owned_peaks: Tensor,
        perturbed_owned_peaks: Tensor,
        part_locations: Tensor,
        part_visible: Tensor,
        random_peaks: Tensor | None = None,
        perturbed_random_peaks: Tensor | None = None,
    ) -> None:
        check_owned_units(owned_ids, owned_peaks, part_locations, part_visible, len(self.total))
        check_tensor("perturbed_owned_peaks", perturbed_owned_peaks, tuple(owned_peaks.shape), "int64")
        parts = (part_locations, part_visible, self.image_size, self.half_width)
        owned = owned_ids >= 0
        evaluated = owned & part_visible.any(dim=1, keepdim=True)

        def compare(peaks: Tensor, perturbed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            clean, noisy = part_hits(peaks, *parts), part_hits(perturbed, *parts)
            covered = evaluated & clean.any(dim=2)
            counted = covered if self.nonempty_only else evaluated
            return (clean == noisy).all(dim=2) & counted, counted, covered

        if self._is_control(random_peaks, "random_peaks", owned_peaks) and self._is_control(
            perturbed_random_peaks, "perturbed_random_peaks", owned_peaks
        ):
            unchanged, counted, _ = compare(random_peaks, perturbed_random_peaks)
            self.random_unchanged = add_at_units(self.random_unchanged, owned_ids, unchanged)
            self.random_total = add_at_units(self.random_total, owned_ids, counted)
        unchanged, counted, covered = compare(owned_peaks, perturbed_owned_peaks)
        self.unchanged = add_at_units(self.unchanged, owned_ids, unchanged)
        self.total = add_at_units(self.total, owned_ids, counted)
        self.images = add_at_units(self.images, owned_ids, evaluated)
        self.evaluated = self.evaluated + evaluated.sum()
        self.covered = self.covered + covered.sum()
        self.dropped = self.dropped + (owned & ~counted).sum()

    def values(self) -> Tensor:
        return part_stability(self.unchanged, self.total)

    def control_values(self) -> Tensor:
        return part_stability(self.random_unchanged, self.random_total)

    def _additions(self) -> dict[str, Any]:
        return {"coverage": float(self.covered.double() / self.evaluated), **super()._additions()}


STABILITY = MetricEntry(
    "alignment/stability",
    PartStability,
    Words(
        question="Does it find the same part under noise?",
        name="Stability",
        formula="mean over units of the share of noisy images on which the parts in the window stay the same",
        source="[H23]",
        misread="A unit on the background has no part in its window before and after, and scores 100 %, and so may "
        "random peaks: see `random_peak`.",
    ),
    lambda facts: PartStability(len(facts.active), facts.image_size, facts.half_width),
    needs=("part_points", "single_label"),
    view="stability",
    whole_split=True,
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
    whole_split=True,
)
