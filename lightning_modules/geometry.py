"""Geometry of a latent grid: from the layers of a backbone to the pixels of a cell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


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
        receptive_field: side of the theoretical receptive field in pixels.
        start: centre of the first cell's receptive field in pixels.

    Example:
        >>> geometry = Geometry.of([Layer(3, 2, 1), Layer(2, 2, 0)], (16, 8))
        >>> geometry.grid, geometry.jump, geometry.receptive_field, geometry.start
        ((4, 2), 4, 5, 1.5)
        >>> geometry.cell_box(1, 1)
        (4, 4, 7, 7)
    """

    image: tuple[int, int]
    grid: tuple[int, int]
    jump: int
    receptive_field: int
    start: float

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
        height, width = self.image
        if not (0 <= row < self.grid[0] and 0 <= col < self.grid[1]):
            raise ValueError(f"Expected argument `row`, `col` to lie in the grid {self.grid}, but got ({row}, {col}).")
        spans = [
            self._span(index, cells, n, size)
            for index, cells, n in ((col, self.grid[1], width), (row, self.grid[0], height))
        ]
        return spans[0][0], spans[1][0], spans[0][1], spans[1][1]

    def _span(self, index: int, cells: int, pixels: int, size: str | int) -> tuple[int, int]:
        if size == "cell":
            return index * pixels // cells, -(-(index + 1) * pixels // cells) - 1
        centre = self.start + self.jump * index
        if size == "receptive_field":
            first = math.floor(centre - self.receptive_field / 2 + 0.5)
            return max(first, 0), min(first + self.receptive_field, pixels) - 1
        side = int(size)
        if not 1 <= side <= pixels:
            raise ValueError(f"Expected argument `size` to be between 1 and {pixels} pixels, but got {side}.")
        first = min(max(math.floor(centre - side / 2 + 0.5), 0), pixels - side)
        return first, first + side - 1
