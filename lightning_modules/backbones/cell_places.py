"""Where the cells of any network lie: the centre of the pixels that a cell is about, measured.

What a cell depends on does not say this: behind attention it is the whole image, and in deep convolutional networks
most of it. What lays cells out are the few operations that change the shape of their input, such as strided
convolutions, poolings and patch embeddings. All others, attention, normalisation and residual branches among them, are
left out here, and convolutions keep the middle of their kernels, so that a cell
depends on a few pixels about its centre.
"""

from __future__ import annotations

from itertools import combinations
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from protometry.lightning_modules.backbones.receptive_field import redrawn
from protometry.lightning_modules.bases.geometry import Line
from protometry.metrics.primitives.upsample import Lattice

_LAYOUTS = {  # move values, which has to happen even where the shape stays
    "__get__", "clone", "contiguous", "einsum", "flatten", "flip", "movedim", "permute", "reshape", "roll", "swapaxes",
    "swapdims", "t", "transpose", "unflatten", "view",
}  # fmt: skip
_PRODUCTS = {"__matmul__", "bmm", "matmul", "scaled_dot_product_attention"}
_TOLERANCE = 1.0  # pixels that the edges of cells may lie beside a line


def measured_lattice(net: nn.Module, image_size: tuple[int, int], grid: tuple[int, int]) -> Lattice | None:
    """Start and jump of the rows and of the columns of cells.

    Measured are the cells on the diagonal, by the pixels to which they have a gradient in a copy with random weights.
    Between queries and values the gradient takes the way through values where both have one shape, else, or if that
    gives no line, through queries.

    Args:
        net: (B, 3, H, W) -> (B, D, h, w); not changed.
        image_size: ``(H, W)`` pixels.
        grid: ``(h, w)`` cells.

    Returns:
        None if the network cannot be measured so, or its cells lie on no line.
    """
    with torch.inference_mode(False), torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(0)
        image = torch.rand(1, 3, *image_size).requires_grad_()
        drawn = redrawn(net)
        for by_values in (True, False):
            try:
                by_axis = _extents(drawn, image, grid, _MiddleOnly(by_values))
            except Exception:  # a network of the user's may raise any type on values that are not its own
                return None
            rows, columns = (_line(*axis) for axis in zip(by_axis, grid, image_size, strict=True))
            if rows is not None and columns is not None:
                return rows, columns
    return None


class _MiddleOnly(TorchFunctionMode):
    """Leave out every operation whose output has the shape of an input that depends on the image."""

    def __init__(self, by_values: bool) -> None:
        super().__init__()
        self._by_values = by_values

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, args, kwargs = getattr(func, "__name__", ""), list(args), dict(kwargs or {})
        if name == "conv2d":
            args[1:2] = [_middle(args[1] if len(args) > 1 else kwargs.pop("weight"))]
        elif name == "view" and not any(isinstance(arg, torch.dtype) for arg in args):
            func = Tensor.reshape  # what is left out may have laid values out for it
        output = func(*args, **kwargs)
        first = output[0] if isinstance(output, tuple) and output else output
        if name in _LAYOUTS or not isinstance(first, Tensor) or not first.requires_grad:
            return output
        seen = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor) and value.requires_grad]
        alike = [value for value in seen if value.shape == first.shape]
        if name in _PRODUCTS and len(seen) > 1 and not (alike and self._by_values):
            return func(
                args[0], *(value.detach() if isinstance(value, Tensor) else value for value in args[1:]), **kwargs
            )
        if not alike:
            return output
        kept = alike[-1] if name in _PRODUCTS else alike[0]
        return kept if first is output else (kept, *output[1:])


def _middle(weight: Tensor) -> Tensor:
    """A kernel that is 0 but for its middle, two pixels wide where its side is even."""
    mask = torch.zeros(weight.shape[2:])
    mask[tuple(slice((side - 1) // 2, side // 2 + 1) for side in mask.shape)] = 1
    return weight * mask


_Extents = dict[int, tuple[int, int]]  # of rows or columns of cells: the first and the last pixel they depend on


def _extents(
    net: nn.Module, image: Tensor, grid: tuple[int, int], mode: TorchFunctionMode
) -> tuple[_Extents, _Extents]:
    with mode:
        features = net(image)
    longest = max(grid)
    by_axis: tuple[_Extents, _Extents] = {}, {}
    for step in range(longest):
        cell = tuple(step * cells // longest for cells in grid)
        values = features[0, :, cell[0], cell[1]]
        (gradient,) = torch.autograd.grad((values * torch.randn_like(values)).sum(), image, retain_graph=True)
        reached = (gradient[0] != 0).any(dim=0)
        for axis, extents in enumerate(by_axis):
            pixels = reached.any(dim=1 - axis).nonzero().flatten().tolist()
            if pixels:  # a cell may lie in padding only
                extents[cell[axis]] = pixels[0], pixels[-1] + 1
    return by_axis


def _line(extents: _Extents, cells: int, pixels: int) -> Line | None:
    """The line through the middles of most extents, from those edges that the border of the image does not cut.

    Medians, since padding inside the network may cut the last cells, too.
    """
    starts = {cell: float(first) for cell, (first, _) in extents.items() if first > 0}
    ends = {cell: float(after) for cell, (_, after) in extents.items() if after < pixels}
    edges = max(starts, ends, key=len)
    if len(edges) < 2:  # up to two cells, each at a border
        edges = {cell: (first + after) / 2 for cell, (first, after) in extents.items()}
    slopes = [(edges[b] - edges[a]) / (b - a) for a, b in combinations(sorted(edges), 2)]
    jump = median(slopes) if slopes else float(pixels)
    sides = []
    for side, border in ((starts, {0: 0.0}), (ends, {cells - 1: float(pixels)})):
        offsets = [edge - jump * cell for cell, edge in (side or border).items()]
        sides.append(median(offsets))
        if jump <= 0 or median(abs(offset - sides[-1]) for offset in offsets) > _TOLERANCE:
            return None
    return sum(sides) / 2, jump
