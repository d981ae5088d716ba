"""Windows of a few cells: outside them the relevance of the last layers is zero and need not be computed.

The last layers of a backbone have the most channels and the fewest cells. A unit explained from its best cell reaches
3×3 cells behind one 3×3 convolution and 5×5 behind two; outside, relevance is zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from protometry.explanations.relevance.convolution_rules import ConvolutionMap, Weighted
from protometry.explanations.relevance.prp_and_lrp_rules import Residual, passed


@dataclass(frozen=True)
class Window:
    """For each image, the cells that hold all non-zero values of a tensor.

    Args:
        rows: ``(B, s)`` int64, consecutive; may lie outside the frame.
        columns: ``(B, t)`` int64, alike.
        frame: ``(H, W)`` of the whole tensor.
    """

    rows: Tensor
    columns: Tensor
    frame: tuple[int, int]

    @classmethod
    def of_cells(cls, cells: Tensor, frame: tuple[int, int]) -> Window:
        """One cell per image, row times width plus column."""
        return cls(cells[:, None] // frame[1], cells[:, None] % frame[1], frame)

    @cached_property
    def inside(self) -> Tensor:
        """``(B, 1, s, t)`` bool: the cell lies in the frame."""
        rows, columns = ((i >= 0) & (i < n) for i, n in zip((self.rows, self.columns), self.frame, strict=True))
        return (rows[:, :, None] & columns[:, None, :])[:, None]

    def before(self, operator: ConvolutionMap, frame: tuple[int, int], kernel: tuple[int, int]) -> Window:
        """The window of the input of a convolution with stride 1 whose output has this one."""
        if (kernel, operator.padding, frame) == ((1, 1), (0, 0), self.frame):
            return self
        rows, columns = (
            index[:, :1] - padding + torch.arange(index.shape[1] + side - 1, device=index.device)
            for index, padding, side in zip((self.rows, self.columns), operator.padding, kernel, strict=True)
        )
        return Window(rows, columns, frame)

    def take(self, tensor: Tensor) -> Tensor:
        """The window ``(B, C, s, t)`` of ``(B, C, H, W)``, zero outside the frame."""
        return tensor.permute(0, 2, 3, 1)[self._cells].permute(0, 3, 1, 2).mul_(self.inside)

    def put(self, values: Tensor) -> Tensor:
        """The whole tensor ``(B, C, H, W)`` of its window; what lies outside the frame is lost."""
        whole = values.new_zeros(len(values), *self.frame, values.shape[1])  # channels last
        whole.index_put_(self._cells, (values * self.inside).permute(0, 2, 3, 1), accumulate=True)
        return whole.permute(0, 3, 1, 2)

    @cached_property
    def _cells(self) -> tuple[Tensor, Tensor, Tensor]:
        """Indices of image, row and column, ``(B, s, t)`` when broadcast; the nearest one for cells outside."""
        image = torch.arange(len(self.rows), device=self.rows.device)[:, None, None]
        rows, columns = self.rows.clamp(0, self.frame[0] - 1), self.columns.clamp(0, self.frame[1] - 1)
        return image, rows[:, :, None], columns[:, None, :]


def narrowed(rule: Any, window: Window) -> tuple[Any, list[Window]] | None:
    """A rule within a window, and the windows of its inputs; None if the whole tensor is needed, or hardly less."""
    if rule is passed:
        return rule, [window]
    if isinstance(rule, Residual):
        return Residual(window.take(rule.a), window.take(rule.b)), [window, window]
    if not isinstance(rule, Weighted) or not isinstance(rule.operator, ConvolutionMap) or rule.bounds is not None:
        return None
    operator, (rows, columns) = rule.operator, rule.filters.weight.shape[2:]
    height, width = rule.x.shape[2:]
    inner = window.before(operator, (height, width), (rows, columns))
    large = 2 * window.rows.shape[1] * window.columns.shape[1] > window.frame[0] * window.frame[1]
    if large or operator.stride != (1, 1) or operator.dilation != (1, 1):
        return None
    cut = Weighted(
        inner.take(rule.x), replace(operator, padding=(0, 0)), rule.filters, rule.non_negative, None, rule.ladder
    )
    cut.frame = inner.inside.to(rule.x)
    return cut, [inner]
