"""Geometry of a latent grid: the pixels of a cell, and the pixels that it depends on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from protometry.metrics.primitives.upsample import Lattice

Spans = list[tuple[int, int]]  # first and last pixel that each row, or each column, of cells depends on
Line = tuple[float, float]  # centre of the first cell and distance of neighbouring cells along an axis, in pixels


@dataclass(frozen=True)
class Layer:
    """Kernel size, stride and padding of one layer on the longest path of a backbone, in pixels."""

    kernel: int
    stride: int
    padding: int


@dataclass(frozen=True)
class Geometry:
    """The place of latent cells in an image.

    The box of a cell is a square of side ``jump`` about the centre of what the cell reads. Where cells of this side
    fill the image exactly, they tile it instead, as papers draw them; in a network whose strided layers are padded,
    such as a ResNet, the tile then lies up to half a cell beside that centre. A single cell has the box of all it
    depends on.

    Args:
        image: ``(H, W)`` pixels.
        grid: ``(h, w)`` cells.
        jump: distance of neighbouring cells in pixels; None if it is measured.
        receptive_field: side of the theoretical receptive field in pixels; None if it is measured.
        start: centre of the first cell's receptive field in pixels; None if it is measured.
        measured: for networks beyond convolution arithmetic, the pixels that rows and columns of cells depend on;
            called once a receptive field is asked for.
        located: for the same networks, start and jump of rows and of columns, or None if cells do not lie on a line;
            called once a box or an enlarged map is asked for.

    Example:
        >>> geometry = Geometry.of([Layer(3, 2, 1), Layer(2, 2, 0)], (16, 8))
        >>> geometry.grid, geometry.jump, geometry.receptive_field, geometry.start
        ((4, 2), 4, 5, 1.5)
        >>> geometry.cell_box(1, 1)
        (4, 4, 7, 7)
    """

    image: tuple[int, int]
    grid: tuple[int, int]
    jump: float | None
    receptive_field: int | None
    start: float | None
    measured: Callable[[], tuple[Spans, Spans]] | None = field(default=None, repr=False, compare=False)
    located: Callable[[], Lattice | None] | None = field(default=None, repr=False, compare=False)

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
            size: ``"cell"`` for the box of the cell, clipped to the image, ``"receptive_field"`` for the theoretical
                field clipped to the image, an integer for a square of that side about the field's centre, shifted to
                stay inside.

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

    @property
    def is_located(self) -> bool:
        """Whether the place of cells is known; otherwise they are taken to share the image evenly."""
        return self.located is None or self.grid == (1, 1) or self.located() is not None

    @property
    def lines(self) -> Lattice:
        """Start and jump of rows and of columns, by what cells read."""
        return self._line(0), self._line(1)

    @property
    def lattice(self) -> Lattice | None:
        """Start and jump by which boxes lie and maps are enlarged; None where cells fill the image exactly."""
        return None if self._fills(0) and self._fills(1) else (self._placed(0), self._placed(1))

    def caveats(self) -> list[str]:
        """What to know before a network is trained on images of this size, as sentences.

        Example:
            >>> Geometry.of([Layer(16, 16, 0)], (239, 224)).caveats()
            ['15 rows of pixels at the lower side lie in no cell: `--data.image_size 224` or 240 fits.']
        """
        sentences = []
        if self.grid == (1, 1):
            sentences.append(
                "One cell stands for the whole image, so no map or box says where anything is: take larger images "
                "(`--data.image_size`) or a finer grid (`--model.backbone.output_stride`)."
            )
        if not self.is_located:
            sentences.append("Where cells lie cannot be measured: they are taken to share the image evenly.")
        sides = ("rows", "lower"), ("columns", "right")
        for (pixels, side), rest, length, (_, jump) in zip(
            sides, self.uncovered(), self.image, self.lines, strict=True
        ):
            if rest:
                fits = f"`--data.image_size {length - rest}` or {round(length - rest + jump)}"
                sentences.append(f"{rest} {pixels} of pixels at the {side} side lie in no cell: {fits} fits.")
        return sentences

    def uncovered(self) -> tuple[int, int]:
        """Rows and columns of pixels at the far sides of the image that no cell covers.

        An image less them fits the grid, and so does one that is a jump larger. Cells may depend on these pixels a
        little, as on their surroundings.

        Example:
            >>> Geometry.of([Layer(16, 16, 0)], (239, 230)).uncovered()
            (15, 6)
        """
        rest = []
        for (start, jump), cells, pixels in zip(self.lines, self.grid, self.image, strict=True):
            reach = 2 * max(start, jump / 2) + jump * (cells - 1)  # as much before the first centre as after the last
            rest.append(max(0, math.floor(pixels - reach)))
        return rest[0], rest[1]

    def _line(self, axis: int) -> Line:
        cells, pixels = self.grid[axis], self.image[axis]
        if cells == 1 and (self.measured is not None or self.receptive_field is not None):
            first, last = self._span(axis, 0, "receptive_field")
            return (first + last + 1) / 2, last + 1 - first
        if self.start is not None and self.jump is not None:
            return self.start, self.jump
        lattice = self.located() if self.located is not None else None
        return (pixels / cells / 2, pixels / cells) if lattice is None else lattice[axis]

    def _fills(self, axis: int) -> bool:
        return math.isclose(self._line(axis)[1] * self.grid[axis], self.image[axis])

    def _placed(self, axis: int) -> Line:
        start, jump = self._line(axis)
        return (jump / 2, jump) if self._fills(axis) else (start, jump)

    def _span(self, axis: int, index: int, size: str | int) -> tuple[int, int]:
        pixels = self.image[axis]
        if size == "receptive_field" and self.measured is not None:
            return self.measured()[axis][index]
        if size == "receptive_field" and self.receptive_field is not None:
            centre = (self.start or 0) + (self.jump or 0) * index  # which convolution arithmetic gives, too
            first = math.floor(centre - self.receptive_field / 2 + 0.5)
            return max(first, 0), min(first + self.receptive_field, pixels) - 1
        if size == "cell" and self._fills(axis):
            cells = self.grid[axis]
            return index * pixels // cells, -(-(index + 1) * pixels // cells) - 1
        start, jump = self._line(axis)
        centre = start + jump * index
        if size == "cell":
            first, after = (math.floor(centre + side + 0.5) for side in (-jump / 2, jump / 2))
            return min(max(first, 0), pixels - 1), min(max(after - 1, 0), pixels - 1)
        side = int(size)
        if not 1 <= side <= pixels:
            raise ValueError(f"Expected argument `size` to be between 1 and {pixels} pixels, but got {side}.")
        first = min(max(math.floor(centre - side / 2 + 0.5), 0), pixels - side)
        return first, first + side - 1
