"""Geometry of a latent grid: the pixels of a cell, and the pixels that it depends on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

Spans = list[tuple[int, int]]  # first and last pixel that each row, or each column, of cells depends on


@dataclass(frozen=True)
class Layer:
    """Kernel size, stride and padding of one layer on the longest path of a backbone, in pixels."""

    kernel: int
    stride: int
    padding: int


@dataclass(frozen=True)
class Geometry:
    """The place of latent cells in an image.

    Args:
        image: ``(H, W)`` pixels.
        grid: ``(h, w)`` cells.
        jump: distance of neighbouring cells in pixels.
        receptive_field: side of the theoretical receptive field in pixels; None if it is measured.
        start: centre of the first cell's receptive field in pixels.
        measured: for networks beyond convolution arithmetic, the pixels that rows and columns of cells depend on;
            called once a receptive field is asked for.

    Example:
        >>> geometry = Geometry.of([Layer(3, 2, 1), Layer(2, 2, 0)], (16, 8))
        >>> geometry.grid, geometry.jump, geometry.receptive_field, geometry.start
        ((4, 2), 4, 5, 1.5)
        >>> geometry.cell_box(1, 1)
        (4, 4, 7, 7)
    """

    image: tuple[int, int]
    grid: tuple[int, int]
    jump: float
    receptive_field: int | None
    start: float
    measured: Callable[[], tuple[Spans, Spans]] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, layers: Sequence[Layer], image: tuple[int, int]) -> Geometry:
        """Convolution arithmetic over the layers on the longest path, for an image of ``(H, W)`` pixels.

        Raises:
            ValueError: if the image is too small to leave one cell.
        """
        grid, jump, field_side, start = list(image), 1, 1, 0.5
        for layer in layers:
            grid = [(n + 2 * layer.padding - layer.kernel) // layer.stride + 1 for n in grid]
            field_side += (layer.kernel - 1) * jump
            start += ((layer.kernel - 1) / 2 - layer.padding) * jump
            jump *= layer.stride
        if min(grid) < 1:
            raise ValueError(f"Expected argument `image_size` to leave at least one latent cell, but got {image}.")
        return cls(image, (grid[0], grid[1]), jump, field_side, start)

    def cell_box(
        self, row: int, col: int, size: Literal["cell", "receptive_field"] | int = "cell"
    ) -> tuple[int, int, int, int]:
        """The pixels of one cell.

        Args:
            row: grid row.
            col: grid column.
            size: ``"cell"`` for the tile of the grid, ``"receptive_field"`` for the theoretical field clipped to the
                image, an integer for a square of that side about the field's centre, shifted to stay inside.

        Returns:
            Inclusive pixels ``(x0, y0, x1, y1)``.

        Raises:
            ValueError: if the cell lies outside the grid or the square is larger than the image.
        """
        if not (0 <= row < self.grid[0] and 0 <= col < self.grid[1]):
            raise ValueError(f"Expected argument `row`, `col` to lie in the grid {self.grid}, but got ({row}, {col}).")
        (y0, y1), (x0, x1) = self._span(0, row, size), self._span(1, col, size)
        return x0, y0, x1, y1

    def sees_everything(self) -> bool:
        """Whether every cell depends on the whole image, as behind attention or squeeze-and-excite."""
        corners = [(0, 0), (self.grid[0] - 1, self.grid[1] - 1)]
        whole = (0, 0, self.image[1] - 1, self.image[0] - 1)
        return all(self.cell_box(*cell, "receptive_field") == whole for cell in corners)

    def _span(self, axis: int, index: int, size: str | int) -> tuple[int, int]:
        cells, pixels = self.grid[axis], self.image[axis]
        if size == "cell":
            return index * pixels // cells, -(-(index + 1) * pixels // cells) - 1
        if size == "receptive_field" and self.measured is not None:
            return self.measured()[axis][index]
        centre = self.start + self.jump * index
        if size == "receptive_field" and self.receptive_field is not None:
            first = math.floor(centre - self.receptive_field / 2 + 0.5)
            return max(first, 0), min(first + self.receptive_field, pixels) - 1
        side = int(size)
        if not 1 <= side <= pixels:
            raise ValueError(f"Expected argument `size` to be between 1 and {pixels} pixels, but got {side}.")
        first = min(max(math.floor(centre - side / 2 + 0.5), 0), pixels - side)
        return first, first + side - 1
