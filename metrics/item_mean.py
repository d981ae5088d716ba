"""The base of metrics that average one value per class, unit, concept or label."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from metrics.functional.primitives.intervals import mean_interval
from metrics.summary import SummaryMetric


class ItemMean(SummaryMetric):
    """Mean over the items whose value is defined.

    The interval is that of the items' spread, not of the sampling of images, unless a subclass says otherwise. ``n``
    counts items; ``skipped`` counts undefined items and the inputs that ``update`` left out (state ``dropped``).

    Args:
        kwargs: arguments of :class:`torchmetrics.Metric`.
    """

    dropped: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("dropped", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    @abstractmethod
    def values(self) -> Tensor:
        """One float64 value per item, NaN where undefined.

        Computed from the states as they stand: enter ``sync_context()`` for those of all processes. Two int64 counts
        divide to float32, so cast one of them first.
        """

    def _estimate(self) -> tuple[Tensor, Tensor, Tensor]:
        values, undefined = self._defined()
        n = (~undefined).sum()
        return values.sum() / n, n, undefined.sum() + self.dropped

    def _interval(self) -> tuple[Tensor, Tensor]:
        values, undefined = self._defined()
        return mean_interval(values.sum(), values.square().sum(), (~undefined).sum())

    def _defined(self) -> tuple[Tensor, Tensor]:
        values = self.values()
        if values.dtype != torch.float64:
            raise TypeError(
                f"Expected method `values` to return float64, but got {values.dtype}; cast before dividing."
            )
        undefined = ~values.isfinite()
        return values.masked_fill(undefined, 0), undefined
