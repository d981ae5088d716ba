"""Base class of metrics that need the scores of all images at once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from protometry.metrics.base import ItemMean


class KeptScores(ItemMean):
    """Mean over units of a value that depends on the scores of a unit on all images, kept as float32.

    Subclasses call ``_append`` in ``update``. The buffer holds up to twice as many images as were added.
    """

    scores: Tensor

    def __init__(self, columns: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("scores", torch.zeros(0, columns), dist_reduce_fx="cat")
        self._buffer = torch.zeros(0, columns)  # whose first rows ``scores`` is

    def _append(self, rows: Tensor) -> None:
        """Add rows to ``scores``, in a buffer that doubles: concatenation would copy all images with every batch."""
        count, total = len(self.scores), len(self.scores) + len(rows)
        if self._buffer.data_ptr() != self.scores.data_ptr() or total > len(self._buffer):
            with torch.inference_mode(False):  # so that rows can be added in any mode
                self._buffer = torch.empty(max(total, 2 * count), self.scores.shape[1], device=rows.device)
            self._buffer[:count] = self.scores
        self._buffer[count:total] = rows
        self.scores = self._buffer[:total]

    def _sync_dist(self, *args: Any, **kwargs: Any) -> None:
        # torchmetrics concatenates what processes hold only if it is a list, and a list must not be empty
        self.scores = [self.scores]  # type: ignore[assignment]
        super()._sync_dist(*args, **kwargs)
