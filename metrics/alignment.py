"""Whether units stand for object parts: always the same, the same under noise, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from metrics.functional.alignment import (
    _check_groups,
    _part_hits,
    _top_images,
    merge_parts,
    part_consistency,
    part_purity,
    part_stability,
)
from metrics.functional.primitives.boxes import points_in_boxes
from metrics.functional.primitives.checks import check_tensor
from metrics.item_mean import ItemMean
from metrics.summary import AveragedOver


def _check_owned(owned_ids: Tensor, owned_peaks: Tensor, part_locations: Tensor, part_visible: Tensor) -> None:
    check_tensor("owned_ids", owned_ids, ("B", "M"), "int64")
    check_tensor("owned_peaks", owned_peaks, (*owned_ids.shape, 2), "int64")
    check_tensor("part_visible", part_visible, (owned_ids.shape[0], "N"), "bool")
    check_tensor("part_locations", part_locations, (*part_visible.shape, 2), "float")


def _add_at(counts: Tensor, owned_ids: Tensor, values: Tensor) -> Tensor:
    """``counts`` of units plus ``(B, M, ...)`` bool values of the units in ``(B, M)`` slots."""
    return counts.index_add(0, owned_ids.clamp(min=0).flatten(), values.long().flatten(0, 1))


class PartConsistency(ItemMean):
    """Share of units that find some part in nearly all images of their class.

    Source and definition: :func:`metrics.functional.part_coverage`, on test images cropped to the object box. A
    unit finds a part that is visible and lies in the window around the unit's peak. Left and right parts are not
    merged.

    Args:
        num_units: U.
        num_parts: N.
        image_size: ``(H, W)`` pixels.
        half_width: of the window, in pixels; 36 at a height of 224, ``round(36 H / 224)`` at another.
        threshold: share of images, inclusive.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Example:
        >>> metric = PartConsistency(num_units=2, num_parts=1, image_size=(224, 224))
        >>> ids, peaks = torch.tensor([[0, 1]]), torch.tensor([[[100, 100], [10, 10]]])
        >>> metric.update(ids, peaks, torch.tensor([[[120.0, 110.0]]]), torch.tensor([[True]]))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    name = "consistency"
    unit = "fraction"
    reads = ("owned_ids", "owned_peaks", "part_locations", "part_visible")
    averaged_over: AveragedOver = "unit"
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
        """Add a batch.

        Args:
            owned_ids: ``(B, M)`` int64, the active units of the class of each image, padded with -1.
            owned_peaks: ``(B, M, 2)`` int64 pixels (x, y).
            part_locations: ``(B, N, 2)`` float pixels (x, y).
            part_visible: ``(B, N)`` bool.
        """
        _check_owned(owned_ids, owned_peaks, part_locations, part_visible)
        found = _part_hits(owned_peaks, part_locations, part_visible, self.image_size, self.half_width)
        owned = (owned_ids >= 0)[:, :, None]
        self.hits = _add_at(self.hits, owned_ids, found & owned)
        self.visible = _add_at(self.visible, owned_ids, part_visible[:, None] & owned)

    def values(self) -> Tensor:
        """``(U,)`` float64, NaN where undefined."""
        return part_consistency(self.hits, self.visible, self.threshold)


class PartStability(ItemMean):
    """Mean over units of the share of noisy images on which they find exactly the parts of the clean image.

    Source and definition: :func:`metrics.functional.part_stability`. Call ``update`` once per noise draw, three times
    in the paper. Images without a visible part are left out and counted.

    Two empty vectors are equal, so that a unit on the background scores 1. Publish ``nonempty_only=True`` beside the
    paper's number: it leaves out, and counts, images on which the unit finds no part before the noise. ``summary``
    adds ``coverage``, the share of images, draws and units with a part found before the noise.

    Args:
        num_units: U.
        image_size: ``(H, W)`` pixels.
        half_width: of the window, in pixels; 36 at a height of 224, ``round(36 H / 224)`` at another.
        nonempty_only: whether the unit has to find a part on the clean image.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Example:
        >>> metric = PartStability(num_units=1)
        >>> ids, clean = torch.tensor([[0], [0]]), torch.tensor([[[50, 50]], [[50, 50]]])
        >>> noisy = torch.tensor([[[52, 50]], [[150, 50]]])
        >>> metric.update(ids, clean, noisy, torch.full((2, 1, 2), 60.0), torch.ones(2, 1, dtype=torch.bool))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    name = "stability"
    unit = "fraction"
    reads = ("owned_ids", "owned_peaks", "perturbed_owned_peaks", "part_locations", "part_visible")
    averaged_over: AveragedOver = "unit"
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
        self.name = "stability_nonempty" if nonempty_only else "stability"
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
        """Add a batch with one draw of the noise.

        Args:
            owned_ids: ``(B, M)`` int64, the active units of the class of each image, padded with -1.
            owned_peaks: ``(B, M, 2)`` int64 pixels (x, y) on the clean images.
            perturbed_owned_peaks: the same on the noisy images.
            part_locations: ``(B, N, 2)`` float pixels (x, y).
            part_visible: ``(B, N)`` bool.
        """
        _check_owned(owned_ids, owned_peaks, part_locations, part_visible)
        check_tensor("perturbed_owned_peaks", perturbed_owned_peaks, tuple(owned_peaks.shape), "int64")
        parts = (part_locations, part_visible, self.image_size, self.half_width)
        clean, noisy = _part_hits(owned_peaks, *parts), _part_hits(perturbed_owned_peaks, *parts)
        owned = owned_ids >= 0
        evaluated = owned & part_visible.any(dim=1, keepdim=True)
        covered = evaluated & clean.any(dim=2)
        counted = covered if self.nonempty_only else evaluated
        self.unchanged = _add_at(self.unchanged, owned_ids, (clean == noisy).all(dim=2) & counted)
        self.total = _add_at(self.total, owned_ids, counted)
        self.evaluated = self.evaluated + evaluated.sum()
        self.covered = self.covered + covered.sum()
        self.dropped = self.dropped + (owned & ~counted).sum()

    def values(self) -> Tensor:
        """``(U,)`` float64, NaN where undefined."""
        return part_stability(self.unchanged, self.total)

    def summary(self) -> dict[str, float]:
        """The value with its interval, and how often a unit found a part before the noise.

        Returns:
            What :meth:`SummaryMetric.summary` returns, and ``coverage``.
        """
        summary = super().summary()
        with self.sync_context(dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync):
            coverage = self.covered.double() / self.evaluated
        return {**summary, "coverage": float(coverage)}


class PartPurity(ItemMean):
    """Mean over units of the share of their top images whose patch holds their best part.

    Source and definition: :func:`metrics.functional.part_purity` on the k images with the largest score of the unit,
    ties to the smaller sample id; an image seen twice counts once. Scores that are not finite are left out and
    counted. ``summary`` adds ``standard_deviation`` of the units' values, ``share_above_half`` of units and
    ``share_decided_by_one_image``: units whose value would be another without parts that are visible in one image.

    Args:
        num_units: U.
        num_parts: N.
        k: images per unit, at least 1.
        active: ``(U,)`` bool, units that are active and used by the head; None for all.
        groups: parts to merge, see :func:`metrics.functional.merge_parts`; None to keep all apart.
        min_visible: images in which a part must be visible to count, at least 1.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: if an argument differs from the above.

    Example:
        >>> metric = PartPurity(num_units=1, num_parts=1, k=2)
        >>> boxes, points = torch.tensor([[[0, 0, 7, 7]]]).repeat(3, 1, 1), torch.tensor([3.0, 9.0, 5.0])
        >>> points = points[:, None, None].repeat(1, 1, 2)  # inside the box, outside, inside
        >>> scores, visible = torch.tensor([[0.9], [0.5], [0.1]]), torch.ones(3, 1, dtype=torch.bool)
        >>> metric.update(scores, boxes, points, visible, sample_ids=torch.arange(3))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    name = "purity"
    unit = "fraction"
    reads = ("scores", "unit_boxes", "part_locations", "part_visible", "sample_ids")
    averaged_over: AveragedOver = "unit"
    higher_is_better = True
    active: Tensor
    top_scores: Tensor
    top_ids: Tensor
    top_flags: Tensor

    def __init__(
        self,
        num_units: int,
        num_parts: int,
        k: int = 10,
        active: Tensor | None = None,
        groups: Sequence[Sequence[int]] | None = None,
        min_visible: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        for name, value in (("num_parts", num_parts), ("k", k), ("min_visible", min_visible)):
            if value < 1:
                raise ValueError(f"Expected argument `{name}` to be at least 1, but got {value}.")
        active = torch.ones(num_units, dtype=torch.bool) if active is None else active
        check_tensor("active", active, (num_units,), "bool")
        self.groups = [[part] for part in range(num_parts)] if groups is None else groups
        _check_groups(self.groups, num_parts)
        self.num_parts = num_parts
        self.k = k
        self.min_visible = min_visible
        self.register_buffer("active", active.clone(), persistent=False)
        # the k best images of every unit so far; score minus infinity = empty; flag 1 = part visible, 2 = inside too
        self.add_state("top_scores", torch.full((num_units, k), -torch.inf, dtype=torch.float64), dist_reduce_fx=None)
        self.add_state("top_ids", torch.full((num_units, k), -1), dist_reduce_fx=None)
        flags = torch.zeros(num_units, k, len(self.groups), dtype=torch.int64)
        self.add_state("top_flags", flags, dist_reduce_fx=None)

    def update(
        self, scores: Tensor, unit_boxes: Tensor, part_locations: Tensor, part_visible: Tensor, sample_ids: Tensor
    ) -> None:
        """Add a batch.

        Args:
            scores: ``(B, U)`` float.
            unit_boxes: ``(B, U, 4)`` int64 inclusive pixels, the patch of each unit's peak cell.
            part_locations: ``(B, N, 2)`` float pixels (x, y).
            part_visible: ``(B, N)`` bool.
            sample_ids: ``(B,)`` int64.
        """
        images, num_units = sample_ids.shape[0], self.active.shape[0]
        check_tensor("sample_ids", sample_ids, ("B",), "int64")
        check_tensor("scores", scores, (images, num_units), "float")
        check_tensor("unit_boxes", unit_boxes, (images, num_units, 4), "int64")
        check_tensor("part_locations", part_locations, (images, self.num_parts, 2), "float")
        check_tensor("part_visible", part_visible, (images, self.num_parts), "bool")
        inside = points_in_boxes(part_locations, unit_boxes)
        inside, visible = merge_parts(inside, part_visible[:, None].expand_as(inside), self.groups)
        usable = scores.isfinite() & self.active
        new_scores = scores.detach().double().masked_fill(~usable, -torch.inf)
        self.top_scores, self.top_ids, self.top_flags = _top_images(
            torch.cat([self.top_scores, new_scores.T], dim=1),
            torch.cat([self.top_ids, sample_ids.expand(num_units, -1)], dim=1),
            torch.cat([self.top_flags, (visible.long() + inside.long()).transpose(0, 1)], dim=1),
            self.k,
        )
        self.dropped = self.dropped + (~usable & self.active).sum()

    def values(self) -> Tensor:
        """``(U,)`` float64, NaN where undefined."""
        return self._purity(self.min_visible)

    def summary(self) -> dict[str, float]:
        """The value with its interval, how the units spread, and how often a single image decided.

        Returns:
            What :meth:`SummaryMetric.summary` returns, and ``standard_deviation`` (n - 1), ``share_above_half`` and
            ``share_decided_by_one_image``.
        """
        summary = super().summary()
        with self.sync_context(dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync):
            values, strict = self.values(), self._purity(max(2, self.min_visible))
        defined = values.isfinite()
        n = defined.sum()
        deviations = (values - values.nanmean()).masked_fill(~defined, 0)
        variance = (deviations.square().sum() / (n - 1)).masked_fill(n < 2, torch.nan)
        return {
            **summary,
            "standard_deviation": float(variance.sqrt()),
            "share_above_half": float((values > 0.5).sum().double() / n),
            "share_decided_by_one_image": float((defined & (values != strict)).sum().double() / n),
        }

    def _purity(self, min_visible: int) -> Tensor:
        scores, _, flags = self._merged()
        filled = (scores > -torch.inf)[:, :, None]
        return part_purity((flags == 2) & filled, (flags > 0) & filled, min_visible)

    def _merged(self) -> tuple[Tensor, Tensor, Tensor]:
        """The states; if they are stacked, one slice per process, the best of all."""
        states = self.top_scores, self.top_ids, self.top_flags
        if self.top_scores.ndim == 2:
            return states
        scores, ids, flags = (state.transpose(0, 1).flatten(1, 2) for state in states)
        return _top_images(scores, ids, flags, self.k)

    def _reduce_states(self, incoming_state: dict[str, Any]) -> None:
        super()._reduce_states(incoming_state)  # stacks
        self.top_scores, self.top_ids, self.top_flags = self._merged()
