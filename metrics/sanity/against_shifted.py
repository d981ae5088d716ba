"""What the sanity metrics share: each unit's value is compared with the value for its map at a random place."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from protometry.metrics.base import ImageMean
from protometry.metrics.primitives.intervals import mean_interval


class AgainstShifted(ImageMean):
    """Mean over images, compared image by image with the same of shifted maps.

    ``summary`` adds ``shifted``, the mean of the control, and ``lift_over_shifted``, value minus control, with the
    bounds of its 95 % interval. A unit counts where both are defined.
    """

    lift_sums: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("lift_sums", torch.zeros(2, dtype=torch.float64), dist_reduce_fx="sum")

    def _compare(self, values: Tensor, shifted: Tensor) -> None:
        """Add ``(B, k)`` values and those of the control, both NaN where undefined."""
        lifts = values - shifted
        self._accumulate(values, lifts.isfinite())
        of_images = lifts.nanmean(dim=1)
        self.lift_sums = self.lift_sums + torch.stack([of_images.nansum(), of_images.square().nansum()])

    def _additions(self) -> dict[str, Any]:
        length = self.value_range[1] - self.value_range[0]
        low, high = mean_interval(self.lift_sums[0], self.lift_sums[1], self.image_count, value_range=(-length, length))
        lift = self.lift_sums[0] / self.image_count
        bounds = {"shifted": self._estimate()[0] - lift, "lift_over_shifted": lift}
        bounds |= {"lift_over_shifted_low": low, "lift_over_shifted_high": high}
        return {name: float(value) for name, value in bounds.items()}
