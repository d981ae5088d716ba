"""Base class of metrics with a value for every image and threshold, reported at one threshold in the end."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics.utilities import rank_zero_warn

from protometry.metrics.base import ImageSums, Interval, entry
from protometry.metrics.primitives.checks import check_at_least, check_tensor
from protometry.metrics.primitives.intervals import mean_interval, wilson_interval


class ThresholdMean(ImageSums):
    """Mean over images at every threshold, over all images and over halves of them.

    Which threshold is reported is decided by several such metrics together, at the end, see
    :func:`protometry.metrics.functional.select_threshold`. Otherwise as :class:`~protometry.metrics.base.ImageMean`.

    Attributes:
        image_values: ``(B, T)`` float64, the values of each image of the last batch, NaN where undefined; no state.
    """

    unit = "fraction"
    averaged_over = "image"
    higher_is_better = True
    interval: Interval = "mean"
    image_values: Tensor

    def __init__(self, num_thresholds: int = 80, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_at_least("num_thresholds", num_thresholds, 1)
        self.num_thresholds = num_thresholds
        # images with an even sample id, and with an odd one; the last column is the mean over thresholds
        self._add_sums(2, num_thresholds + 1)

    def _accumulate(self, values: Tensor, sample_ids: Tensor) -> None:
        """Add ``(B, T)`` values of the images with these ``(B,)`` int64 ids."""
        check_tensor("values", values, ("B", self.num_thresholds), "float")
        check_tensor("sample_ids", sample_ids, (len(values),), "int64")
        values = values.detach().double()
        self.image_values = values.masked_fill(~values.isfinite(), torch.nan)
        columns = torch.cat([self.image_values, self.image_values.mean(dim=1, keepdim=True)], dim=1)
        defined = ~columns.isnan()
        columns = columns.masked_fill(~defined, 0)
        half = sample_ids.remainder(2)
        self.value_sum = self.value_sum.index_add(0, half, columns)
        self.square_sum = self.square_sum.index_add(0, half, columns.square())
        self.image_count = self.image_count.index_add(0, half, defined.long())
        self.skipped = self.skipped.index_add(0, half, (~defined).long())

    def compute(self) -> Tensor:
        """The mean over all images and processes at every threshold, ``(T,)`` float64."""
        count = self.image_count.sum(dim=0)[:-1]
        if self.update_called and not count.all():
            rank_zero_warn(
                f"{type(self).__name__} is NaN: nothing it could measure among "
                f"{int(self.skipped.sum(dim=0)[:-1].max())} images.",
                UserWarning,
            )
        return self.value_sum.sum(dim=0)[:-1] / count

    def halves(self) -> Tensor:
        """The means over images with an even sample id and over those with an odd one, over all processes.

        Every process has to call it.

        Returns:
            ``(2, T)`` float64, even and odd; NaN where no image of the half was defined.
        """
        with self.sync_context(dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync), torch.no_grad():
            return (self.value_sum / self.image_count)[:, :-1]

    def summary(self, index: int | None = None) -> dict[str, float]:
        """The value at one threshold with its interval, over all processes.

        Keys as of :meth:`~protometry.metrics.base.SummaryMetric.summary`; every process has to call it.

        Args:
            index: of the threshold; None for the mean over all thresholds of each image, the area.

        Raises:
            IndexError: if there is no such threshold.
        """
        if index is not None and not 0 <= index < self.num_thresholds:
            raise IndexError(f"Expected argument `index` to be in [0, {self.num_thresholds}), but got {index}.")
        column = self.num_thresholds if index is None else index
        with self.sync_context(dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync), torch.no_grad():
            states = (self.value_sum, self.square_sum, self.image_count, self.skipped)
            total, squares, count, skipped = (state[:, column].sum() for state in states)
            if self.interval == "wilson" and index is not None:
                low, high = wilson_interval(total, count)
            else:
                low, high = mean_interval(total, squares, count, value_range=self.value_range)
            return entry(total / count, count, skipped, low, high)
