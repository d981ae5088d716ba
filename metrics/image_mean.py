"""The base of metrics that average one value per image."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from metrics.functional.primitives.checks import check_tensor
from metrics.functional.primitives.intervals import mean_interval, wilson_interval
from metrics.summary import AveragedOver, SummaryMetric


class ImageMean(SummaryMetric):
    """Mean over images, image first.

    Several values of an image are averaged before images are, so that ``n`` counts images and the interval is not too
    narrow. Values that are not finite are undefined: left out and counted. Sums are float64 and counts int64, so
    that batch size, order and number of processes cannot move the result.

    Subclasses call ``_accumulate`` in ``update`` and set ``interval = "wilson"`` if an image's value is 0 or 1.

    Args:
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Attributes:
        image_values: ``(B,)`` float64, the value of each image of the last batch, NaN where it has none; no state.
    """

    averaged_over: AveragedOver = "image"
    interval: Literal["normal", "wilson"] = "normal"
    image_values: Tensor
    value_sum: Tensor
    square_sum: Tensor
    image_count: Tensor
    skipped: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for state, dtype in (
            ("value_sum", torch.float64),
            ("square_sum", torch.float64),
            ("image_count", torch.int64),
            ("skipped", torch.int64),
        ):
            self.add_state(state, torch.zeros((), dtype=dtype), dist_reduce_fx="sum")

    def _accumulate(self, values: Tensor, valid: Tensor | None = None) -> None:
        """Add ``(B,)`` or ``(B, k)`` values, undefined where not finite or where ``valid`` is False."""
        values = values.detach().double()
        defined = values.isfinite()
        if valid is not None:
            check_tensor("valid", valid, tuple(values.shape), "bool")
            defined = defined & valid
        entries = values.masked_fill(~defined, 0)
        counts = defined.long()
        if values.ndim == 2:
            counts = counts.sum(dim=1)
            entries = entries.sum(dim=1) / counts.clamp(min=1)
        self.image_values = entries.masked_fill(counts == 0, torch.nan)
        self.value_sum = self.value_sum + entries.sum()
        self.square_sum = self.square_sum + entries.square().sum()
        self.image_count = self.image_count + (counts > 0).sum()
        self.skipped = self.skipped + (~defined).sum()

    def _estimate(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.value_sum / self.image_count, self.image_count, self.skipped

    def _interval(self) -> tuple[Tensor, Tensor]:
        if self.interval == "wilson":
            return wilson_interval(self.value_sum, self.image_count)
        return mean_interval(self.value_sum, self.square_sum, self.image_count)
