"""What every metric of this package can say about itself: its name, what it reads, and its value with an interval."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import rank_zero_warn

AveragedOver = Literal["image", "object", "pair", "unit", "class", "concept", "label", "none"]


class SummaryMetric(Metric):
    """A metric with one number, an interval and counts of what was defined and what was not.

    Subclasses set the attributes below and answer ``_estimate`` and ``_interval`` from their states.

    Attributes:
        name: the part of the result key after the slash.
        unit: of the value, such as ``"fraction"``.
        reads: argument names of ``update``.
        higher_is_better: direction of the source paper.
        averaged_over: what ``n`` counts; ``"none"`` for a number of the model.
    """

    name: str
    unit: str
    reads: tuple[str, ...]
    averaged_over: AveragedOver
    is_differentiable = False
    full_state_update = False

    @abstractmethod
    def _estimate(self) -> tuple[Tensor, Tensor, Tensor]:
        """Value, n and number of skipped entries of the states as they stand."""

    @abstractmethod
    def _interval(self) -> tuple[Tensor, Tensor]:
        """Bounds of the 95 % interval of the states as they stand."""

    def compute(self) -> Tensor:
        """The value over all processes.

        Returns:
            float64 scalar; NaN, with a warning, if nothing was defined.
        """
        value, n, skipped = self._estimate()
        if n == 0 and self.update_called:  # torchmetrics itself warns where update was never called
            rank_zero_warn(
                f"{type(self).__name__} is NaN: nothing it could measure among {int(skipped)} entries.", UserWarning
            )
        return value

    def summary(self) -> dict[str, float]:
        """The value with its interval, over all processes.

        Every process has to call it, as with ``compute``.

        Returns:
            ``value``, the bounds ``low`` and ``high`` of the 95 % interval, ``n`` values averaged and the number of
            undefined entries ``skipped``; NaN for what is undefined.
        """
        with self.sync_context(dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync), torch.no_grad():
            value, n, skipped = self._estimate()
            low, high = self._interval()
        return {
            "value": float(value),
            "low": float(low),
            "high": float(high),
            "n": int(n),
            "skipped": int(skipped),
        }
