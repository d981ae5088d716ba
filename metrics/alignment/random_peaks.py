"""What metrics of the parts that a unit finds share: how many images it has, and a control with peaks at random."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, TypeGuard

import torch
from torch import Tensor

from protometry.metrics.base import ItemMean
from protometry.metrics.primitives.checks import check_at_least, check_tensor
from protometry.metrics.primitives.intervals import mean_interval

LEAST_IMAGES = 5  # of a unit: of fewer, four fifths are all of them


class AgainstRandomPeaks(ItemMean):
    """Mean over units or classes, compared one by one with the same of units that peak at random cells.

    ``summary`` adds ``images_per_unit``, the mean number of images of the units that have any. If every ``update`` was
    given random peaks, it also adds the mean of the control, ``random_peak``, and ``lift_over_random_peak``, value
    minus control, with the bounds of its 95 % interval over the same items.

    Args:
        least_images: below which a unit is left out as undefined.

    Attributes:
        draws: how often an image is counted in ``images``.
    """

    draws = 1
    images: Tensor
    without_control: Tensor

    def __init__(self, num_units: int, least_images: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_at_least("least_images", least_images, 1)
        self.least_images = least_images
        self.add_state("images", torch.zeros(num_units, dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("without_control", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    @property
    def undefined(self) -> str | None:  # type: ignore[override]  # depends on what was asked for
        """Why nothing is defined."""
        least = self.least_images
        return None if least == 1 else f"no unit has at least {least} images, below which chance decides"

    @abstractmethod
    def control_values(self) -> Tensor:
        """As :meth:`values`, of units that peak at random cells."""

    def _is_control(self, random: Tensor | None, name: str, real: Tensor) -> TypeGuard[Tensor]:
        """Whether a batch has random peaks or boxes, of the shape of the real ones; counted if it has not."""
        if random is None:
            self.without_control = self.without_control + len(real)
            return False
        check_tensor(name, random, tuple(real.shape), "int64")
        return True

    def _enough(self, counts: Tensor) -> Tensor:
        """``(U, ...)`` counts, 0 for units that have too few images."""
        few = self.images < self.least_images
        return counts.masked_fill(few.view(-1, *[1] * (counts.ndim - 1)), 0)

    def _additions(self) -> dict[str, Any]:
        shown = (self.images > 0).sum()
        additions: dict[str, Any] = {"images_per_unit": float(self.images.sum().double() / shown / self.draws)}
        if self.without_control > 0:
            return additions
        controls = self.control_values()
        lifts = self.values() - controls
        length = self.value_range[1] - self.value_range[0]
        sums = lifts.nansum(), lifts.square().nansum(), lifts.isfinite().sum()
        low, high = mean_interval(*sums, value_range=(-length, length))
        control = controls.masked_fill(~lifts.isfinite(), torch.nan).nanmean()
        names = ("random_peak", "lift_over_random_peak", "lift_over_random_peak_low", "lift_over_random_peak_high")
        return additions | dict(zip(names, map(float, (control, lifts.nanmean(), low, high)), strict=True))
