"""What the sanity metrics share: every value is compared with that of a control, in the same image."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from protometry.metrics.base import ImageMean
from protometry.metrics.primitives.intervals import lift_over, mean_interval


class AgainstControl(ImageMean):
    """Mean over images, compared image by image with the same of a control, such as maps at a random place.

    ``summary`` adds the mean of the control, under its name, and ``lift_over_<name>``, value minus control, with the
    bounds of its 95 % interval. What has no value with either is left out.

    Attributes:
        control: its name.
    """

    control: ClassVar[str] = "shifted"
    lift_sums: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("lift_sums", torch.zeros(2, dtype=torch.float64), dist_reduce_fx="sum")

    def _compare(self, values: Tensor, controls: Tensor) -> None:
        """Add ``(B, k)`` values and those of the control, both NaN where undefined."""
        lifts = values - controls
        self._accumulate(values, lifts.isfinite())
        of_images = lifts.nanmean(dim=1)
        self.lift_sums = self.lift_sums + torch.stack([of_images.nansum(), of_images.square().nansum()])

    def _additions(self) -> dict[str, Any]:
        length = self.value_range[1] - self.value_range[0]
        low, high = mean_interval(self.lift_sums[0], self.lift_sums[1], self.image_count, value_range=(-length, length))
        lift = self.lift_sums[0] / self.image_count
        return lift_over(self.control, self._estimate()[0] - lift, lift, (low, high))
