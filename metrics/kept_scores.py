"""Base class of metrics that need the scores of all images at once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from protometry.metrics.base import ItemMean


class KeptScores(ItemMean):
    """Mean over units of a value that depends on the scores of a unit on all images, kept as float32.

    Subclasses call ``_append`` in ``update``. The state has room for up to twice as many images as were added.
    """

    scores: Tensor

    def __init__(self, columns: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("scores", torch.zeros(0, columns), dist_reduce_fx="cat")
        self._room = torch.zeros(0, columns)  # whose first rows ``scores`` is

    def _append(self, rows: Tensor) -> None:
        """Add rows to ``scores``, in room that doubles: concatenation would copy all images with every batch."""
        count, total = len(self.scores), len(self.scores) + len(rows)
        if self._room.data_ptr() != self.scores.data_ptr() or total > len(self._room):
            with torch.inference_mode(False):  # so that rows can be added in any mode
                self._room = torch.empty(max(total, 2 * count), self.scores.shape[1], device=rows.device)
            self._room[:count] = self.scores
        self._room[count:total] = rows
        self.scores = self._room[:total]

    def _sync_dist(self, *args: Any, **kwargs: Any) -> None:
        # torchmetrics concatenates what processes hold only if it is a list, and a list must not be empty
        self.scores = [self.scores]  # type: ignore[assignment]
        super()._sync_dist(*args, **kwargs)
