"""Reactions of units to changes of the image outside the region their explanation highlights."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor
from torchmetrics.utilities import rank_zero_warn

from metrics.base import AveragedOver, SeparateMetric
from metrics.functional.misalignment import (
    accuracy_change,
    misalignment_activation_change,
    misalignment_location_change,
    misalignment_rank_change,
)
from metrics.functional.primitives.checks import check_tensor
from metrics.functional.primitives.intervals import Range, mean_interval


class SpatialMisalignment(SeparateMetric):
    """Four mean changes over images that are perturbed outside the region of a target unit.

    Source: Sacha et al. (2024). For all four lower is better, and each has its own number of images, those with a
    target unit on which it is defined. With s the scores of an image clipped at 0, t its target unit, A the map of t,
    and ' for the perturbed image:

    - ``"pac"``, fraction: ``1 - s'_t / s_t``, negative if the score rises; undefined where s_t = 0.
    - ``"plc"``, fraction: ``1 - IoU(A > q(A), A' > q(A'))`` with q the ``quantile`` of a map; undefined where flat.
    - ``"prc"``, ranks: ``#{u : s'_u > s'_t} - #{u : s_u > s_t}`` over active units u not owned by the image's class.
    - ``"ac"``, fraction: ``1[correct before] - 1[correct after]``.

    Despite their names ``"pac"``, ``"plc"`` and ``"prc"`` differ from the changes of Schlinge et al. (2025).

    Args:
        owner: ``(U, K)`` bool, units owned by each class.
        active: ``(U,)`` bool; None for all.
        quantile: of each map, above which a pixel is in the region.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        scores: ``(B, U)`` float, clean images.
        perturbed_scores: ``(B, U)`` float, images perturbed outside the region of the target.
        target_ids: ``(B,)`` int64 unit of each image, -1 for none.
        target_maps: ``(B, H, W)`` float, bilinearly upsampled map of the target on the clean images.
        perturbed_target_maps: ``(B, H, W)`` float, the same on the perturbed images.
        logits: ``(B, K)`` float, clean images.
        perturbed_logits: ``(B, K)`` float, perturbed images.
        labels: ``(B,)`` int64 in ``[0, K)``, or ``(B, K)`` bool for multilabel data.

    Raises:
        ValueError: if an argument differs from the above.

    Example:
        >>> metric = SpatialMisalignment(owner=torch.eye(2, dtype=torch.bool))
        >>> maps, logits = torch.tensor([[[0.0, 1.0]]]), torch.tensor([[2.0, 1.0]])
        >>> target, label = torch.tensor([0]), torch.tensor([0])
        >>> metric.update(
        ...     torch.tensor([[2.0, 1.0]]), torch.tensor([[0.5, 1.0]]), target, maps, maps, logits, logits, label
        ... )
        >>> {name: value.item() for name, value in metric.compute().items()}
        {'pac': 0.75, 'plc': 0.0, 'prc': 1.0, 'ac': 0.0}
    """

    name = "misalignment"
    units: ClassVar[dict[str, str]] = {"pac": "fraction", "plc": "fraction", "prc": "ranks", "ac": "fraction"}
    value_ranges: ClassVar[dict[str, Range]] = {
        "pac": (-math.inf, 1.0),
        "plc": (0.0, 1.0),
        "prc": (-math.inf, math.inf),
        "ac": (-1.0, 1.0),
    }
    parts = tuple(units)
    unit = "fraction, ranks"
    reads = (
        "scores",
        "perturbed_scores",
        "target_ids",
        "target_maps",
        "perturbed_target_maps",
        "logits",
        "perturbed_logits",
        "labels",
    )
    averaged_over: AveragedOver = "image"
    higher_is_better = False
    owner: Tensor
    active: Tensor | None
    value_sum: Tensor
    square_sum: Tensor
    image_count: Tensor
    skipped: Tensor

    def __init__(self, owner: Tensor, active: Tensor | None = None, quantile: float = 0.9, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_tensor("owner", owner, ("U", "K"), "bool")
        if active is not None:
            check_tensor("active", active, (owner.shape[0],), "bool")
        self.register_buffer("owner", owner, persistent=False)
        self.register_buffer("active", active, persistent=False)
        self.quantile = quantile
        for state, dtype in (
            ("value_sum", torch.float64),
            ("square_sum", torch.float64),
            ("image_count", torch.int64),
            ("skipped", torch.int64),
        ):
            self.add_state(state, torch.zeros(len(self.parts), dtype=dtype), dist_reduce_fx="sum")

    def update(  # noqa: PLR0913 - one record feeds four numbers of one attack
        self,
        scores: Tensor,
        perturbed_scores: Tensor,
        target_ids: Tensor,
        target_maps: Tensor,
        perturbed_target_maps: Tensor,
        logits: Tensor,
        perturbed_logits: Tensor,
        labels: Tensor,
    ) -> None:
        """Add a batch."""
        check_tensor("scores", scores, ("B", self.owner.shape[0]), "float")
        values = torch.stack(
            [
                misalignment_activation_change(scores, perturbed_scores, target_ids),
                misalignment_location_change(target_maps, perturbed_target_maps, self.quantile),
                misalignment_rank_change(
                    scores, perturbed_scores, target_ids, labels, owner=self.owner, active=self.active
                ),
                accuracy_change(logits, perturbed_logits, labels),
            ]
        ).detach()
        defined = values.isfinite() & (target_ids >= 0)  # without a target nothing was protected
        values = values.masked_fill(~defined, 0)
        self.value_sum = self.value_sum + values.sum(dim=1)
        self.square_sum = self.square_sum + values.square().sum(dim=1)
        self.image_count = self.image_count + defined.sum(dim=1)
        self.skipped = self.skipped + (~defined).sum(dim=1)

    def compute(self) -> dict[str, Tensor]:
        """The four means over all processes.

        Returns:
            ``"pac"``, ``"plc"``, ``"prc"`` and ``"ac"``, float64 scalars; NaN, with a warning, where nothing was
            defined.
        """
        if (self.image_count == 0).any() and self.update_called:
            rank_zero_warn(f"A part of {type(self).__name__} is NaN: nothing it could measure.", UserWarning)
        return dict(zip(self.parts, self.value_sum / self.image_count, strict=True))

    def summary(self) -> dict[str, dict[str, float]]:
        """The four means with their intervals, over all processes.

        Every process has to call it, as with ``compute``.

        Returns:
            For each of the four: ``value``, the bounds ``low`` and ``high`` of the 95 % interval, ``n`` images and the
            number of undefined ones ``skipped``; NaN for what is undefined.
        """
        with self.sync_context(dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync), torch.no_grad():
            summaries = {}
            for i, part in enumerate(self.parts):
                total, n = self.value_sum[i], self.image_count[i]
                low, high = mean_interval(total, self.square_sum[i], n, value_range=self.value_ranges[part])
                summaries[part] = {
                    "value": float(total / n),
                    "low": float(low),
                    "high": float(high),
                    "n": int(n),
                    "skipped": int(self.skipped[i]),
                }
        return summaries
