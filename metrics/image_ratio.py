"""The base of metrics that divide two sums over images."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metrics.functional.primitives.intervals import ratio_interval
from metrics.summary import AveragedOver, SummaryMetric


class ImageRatio(SummaryMetric):
    """Ratio of a sum over images to another, with images as the clusters of the interval.

    Subclasses call ``_accumulate`` in ``update`` with a numerator and a denominator per image. An image in which
    either is not finite or the denominator is 0 has nothing to measure: left out and counted.

    Args:
        kwargs: arguments of :class:`torchmetrics.Metric`.
    """

    averaged_over: AveragedOver = "object"
    sums: Tensor
    image_count: Tensor
    skipped: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("sums", torch.zeros(5, dtype=torch.float64), dist_reduce_fx="sum")  # a, b, aa, bb, ab
        self.add_state("image_count", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("skipped", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def _accumulate(self, numerator: Tensor, denominator: Tensor) -> None:
        """Add ``(B,)`` numerators and ``(B,)`` denominators >= 0."""
        a, b = numerator.detach().double(), denominator.detach().double()
        undefined = ~(a.isfinite() & b.isfinite() & (b != 0))
        a, b = a.masked_fill(undefined, 0), b.masked_fill(undefined, 0)
        self.sums = self.sums + torch.stack([a, b, a * a, b * b, a * b]).sum(dim=1)
        self.image_count = self.image_count + (~undefined).sum()
        self.skipped = self.skipped + undefined.sum()

    def _estimate(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.sums[0] / self.sums[1], self.image_count, self.skipped

    def _interval(self) -> tuple[Tensor, Tensor]:
        return ratio_interval(self.sums, self.image_count)
