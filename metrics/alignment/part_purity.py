"""Purity of units: whether the patches of the top images of a unit hold one object part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from protometry.metrics.alignment.part_groups import checked_groups, merge_parts
from protometry.metrics.alignment.random_peaks import LEAST_IMAGES, AgainstRandomPeaks
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.boxes import points_in_boxes
from protometry.metrics.primitives.checks import check_at_least, check_tensor


def part_purity(inside: Tensor, visible: Tensor, min_visible: int = 1) -> Tensor:
    """Share of a unit's top images whose patch holds its best part.

    Source: Nauta et al. (2023, PIP-Net): ``max_j mean(inside_j | visible_j)`` over the images. A part seen in a single
    image can reach 1; ``min_visible`` leaves out parts seen in fewer.

    Args:
        inside: ``(U, k, N)`` bool, whether the part lies in the unit's patch on its k top images.
        visible: ``(U, k, N)`` bool, whether the part is visible there.
        min_visible: images in which a part must be visible to count, at least 1.

    Returns:
        ``(U,)`` float64 fractions, higher is better; NaN for a unit without a part that counts.
    """
    check_tensor("inside", inside, ("U", "k", "N"), "bool")
    check_tensor("visible", visible, tuple(inside.shape), "bool")
    check_at_least("min_visible", min_visible, 1)
    counts = visible.sum(dim=1)
    counted = counts >= min_visible
    shares = ((inside & visible).sum(dim=1).double() / counts).masked_fill(~counted, -torch.inf)
    return shares.amax(dim=1).masked_fill(~counted.any(dim=1), torch.nan)


def top_images(scores: Tensor, sample_ids: Tensor, flags: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """The k best of C candidates of every unit: ``(U, C)`` scores, ``(U, C)`` ids and ``(U, C, N)`` flags.

    Ties go to the smaller id; of candidates with one id the best counts, the others get the score minus infinity.
    """
    order = scores.argsort(dim=1, descending=True, stable=True)
    order = order.gather(1, sample_ids.gather(1, order).argsort(dim=1, stable=True))  # by id, best of an id first
    scores, sample_ids = scores.gather(1, order), sample_ids.gather(1, order)
    repeated = torch.zeros_like(scores, dtype=torch.bool)
    repeated[:, 1:] = sample_ids[:, 1:] == sample_ids[:, :-1]
    scores = scores.masked_fill(repeated, -torch.inf)
    best = scores.argsort(dim=1, descending=True, stable=True)[:, :k]
    rows = order.gather(1, best)[:, :, None].expand(-1, -1, flags.shape[2])
    return scores.gather(1, best), sample_ids.gather(1, best), flags.gather(1, rows)


class PartPurity(AgainstRandomPeaks):
    """Mean over units of the share of their top images whose patch holds their best part (higher is better).

    Of the patch of each unit's peak on the k images with its largest scores. Ties go to the smaller sample id; an image
    seen twice counts once.

    ``summary`` adds ``standard_deviation`` of the units' values, ``share_above_half`` of units and
    ``share_decided_by_one_image``: units whose value would be another without parts that are visible in one image.

    Args:
        active: ``(U,)`` bool, units that are active and used by the head; None for all.
        groups: parts to merge, see :func:`protometry.metrics.functional.merge_parts`; None to keep all apart.
        least_images: with a score, below which a unit is left out; of fewer than k all are its best.

    Inputs:
        unit_boxes: ``(B, U, 4)`` int64 inclusive pixels ``(x0, y0, x1, y1)``, the patch of each unit's peak cell.
        random_boxes: the same of a random cell.

    Example:
        >>> metric = PartPurity(num_units=1, num_parts=1, k=2)
        >>> boxes, points = torch.tensor([[[0, 0, 7, 7]]]).repeat(3, 1, 1), torch.tensor([3.0, 9.0, 5.0])
        >>> points = points[:, None, None].repeat(1, 1, 2)  # inside the box, outside, inside
        >>> scores, visible = torch.tensor([[0.9], [0.5], [0.1]]), torch.ones(3, 1, dtype=torch.bool)
        >>> metric.update(scores, boxes, points, visible, sample_ids=torch.arange(3))
        >>> metric.compute()  # of the first two images
        tensor(0.5000, dtype=torch.float64)
    """

    unit = "fraction"
    averaged_over = "unit"
    higher_is_better = True
    active: Tensor
    top_scores: Tensor
    top_ids: Tensor
    top_flags: Tensor

    def __init__(  # noqa: PLR0913 - which images, which parts, which units
        self,
        num_units: int,
        num_parts: int,
        k: int = 10,
        active: Tensor | None = None,
        groups: Sequence[Sequence[int]] | None = None,
        min_visible: int = 1,
        least_images: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_units, least_images, **kwargs)
        for name, value in (("num_parts", num_parts), ("k", k), ("min_visible", min_visible)):
            check_at_least(name, value, 1)
        active = torch.ones(num_units, dtype=torch.bool) if active is None else active
        check_tensor("active", active, (num_units,), "bool")
        self.groups = checked_groups(groups, num_parts)
        self.num_parts = num_parts
        self.k = k
        self.min_visible = min_visible
        self.register_buffer("active", active.clone(), persistent=False)
        # the k best images of every unit so far; score minus infinity = empty; the flags of a part are sums of 1 =
        # visible, 2 = inside too, 4 = inside the random box
        self.add_state("top_scores", torch.full((num_units, k), -torch.inf, dtype=torch.float64), dist_reduce_fx=None)
        self.add_state("top_ids", torch.full((num_units, k), -1), dist_reduce_fx=None)
        flags = torch.zeros(num_units, k, len(self.groups), dtype=torch.int64)
        self.add_state("top_flags", flags, dist_reduce_fx=None)

    def update(
        self,
        scores: Tensor,
        unit_boxes: Tensor,
        part_locations: Tensor,
        part_visible: Tensor,
        sample_ids: Tensor,
        random_boxes: Tensor | None = None,
    ) -> None:
        check_tensor("sample_ids", sample_ids, ("B",), "int64")
        images, num_units = len(sample_ids), len(self.active)
        check_tensor("scores", scores, (images, num_units), "float")
        check_tensor("unit_boxes", unit_boxes, (images, num_units, 4), "int64")
        check_tensor("part_locations", part_locations, (images, self.num_parts, 2), "float")
        check_tensor("part_visible", part_visible, (images, self.num_parts), "bool")
        shown = part_visible[:, None].expand(-1, num_units, -1)
        inside, visible = merge_parts(points_in_boxes(part_locations, unit_boxes), shown, self.groups)
        flags = visible.long() + 2 * inside
        if self._is_control(random_boxes, "random_boxes", unit_boxes):
            at_random, _ = merge_parts(points_in_boxes(part_locations, random_boxes), shown, self.groups)
            flags = flags + 4 * at_random
        usable = scores.isfinite() & self.active
        new_scores = scores.detach().double().masked_fill(~usable, -torch.inf)
        self.top_scores, self.top_ids, self.top_flags = top_images(
            torch.cat([self.top_scores, new_scores.T], dim=1),
            torch.cat([self.top_ids, sample_ids.expand(num_units, -1)], dim=1),
            torch.cat([self.top_flags, flags.transpose(0, 1)], dim=1),
            self.k,
        )
        self.images = self.images + usable.sum(dim=0)
        self.dropped = self.dropped + (~usable & self.active).sum()

    def values(self) -> Tensor:
        return self._purity(self.min_visible)

    def control_values(self) -> Tensor:
        return self._purity(self.min_visible, inside=4)

    def _additions(self) -> dict[str, Any]:
        values, strict = self.values(), self._purity(max(2, self.min_visible))
        defined = values.isfinite()
        n = defined.sum()
        deviations = (values - values.nanmean()).masked_fill(~defined, 0)
        variance = (deviations.square().sum() / (n - 1)).masked_fill(n < 2, torch.nan)
        return {
            "standard_deviation": float(variance.sqrt()),
            "share_above_half": float((values > 0.5).sum().double() / n),
            "share_decided_by_one_image": float((defined & (values != strict)).sum().double() / n),
            **super()._additions(),
        }

    def _purity(self, min_visible: int, inside: int = 2) -> Tensor:
        """``(U,)`` of the boxes with this flag."""
        scores, _, flags = self._merged()
        counted = (scores > -torch.inf)[:, :, None] & (flags.bitwise_and(1) > 0)
        return part_purity(flags.bitwise_and(inside) > 0, self._enough(counted), min_visible)

    def _merged(self) -> tuple[Tensor, Tensor, Tensor]:
        """The states; if they are stacked, one slice per process, the best of all."""
        states = self.top_scores, self.top_ids, self.top_flags
        if self.top_scores.ndim == 2:
            return states
        scores, ids, flags = (state.transpose(0, 1).flatten(1, 2) for state in states)
        return top_images(scores, ids, flags, self.k)

    def _reduce_states(self, incoming_state: dict[str, Any]) -> None:
        super()._reduce_states(incoming_state)  # stacks
        self.top_scores, self.top_ids, self.top_flags = self._merged()


PURITY = MetricEntry(
    "alignment/purity",
    PartPurity,
    Words(
        question="Do the strongest patches of a unit show one part?",
        name="Purity",
        formula="mean over units of max_j of the share of their 10 best images whose patch holds part j",
        source="[N23]",
        misread="A part visible in a single image gives 100 %: see `share_decided_by_one_image`. The best of few "
        "images are weaker ones (`images_per_unit`).",
    ),
    lambda facts: PartPurity(
        len(facts.active),
        facts.num_parts,
        active=facts.used,
        groups=facts.part_groups,
        least_images=LEAST_IMAGES,
    ),
    needs=("part_points",),
    whole_split=True,
)
