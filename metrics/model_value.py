"""The base of metrics that are one number of the model, whatever the images."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metrics.summary import AveragedOver, SummaryMetric


class ModelValue(SummaryMetric):
    """One number of the model.

    ``update`` overwrites: call it once, with the same facts on every process. A fact has no interval, so the bounds
    of ``summary`` are NaN, and ``n`` is 1, meaning one model (0 where the number is undefined).

    Args:
        kwargs: arguments of :class:`torchmetrics.Metric`.
    """

    averaged_over: AveragedOver = "none"
    value: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # minus infinity = not updated, so that the maximum over processes ignores one that was not
        self.add_state("value", torch.tensor(-torch.inf, dtype=torch.float64), dist_reduce_fx="max")

    def _store(self, value: Tensor) -> None:
        """Keep a scalar; undefined where not finite."""
        value = value.detach().double()
        self.value = value.masked_fill(~value.isfinite(), torch.nan)

    def _reduce_states(self, incoming_state: dict[str, Any]) -> None:
        # forward() merges the earlier state into the new one; here the new one overwrites, as in update()
        if self.value.isneginf():
            self.value = incoming_state["value"]

    def _estimate(self) -> tuple[Tensor, Tensor, Tensor]:
        return (
            self.value.masked_fill(self.value.isneginf(), torch.nan),
            self.value.isfinite().long(),
            self.value.isnan().long(),
        )

    def _interval(self) -> tuple[Tensor, Tensor]:
        return torch.full_like(self.value, torch.nan), torch.full_like(self.value, torch.nan)
