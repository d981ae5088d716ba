"""What the cells of any network depend on, measured: the pixels to which a cell has a gradient."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from protometry.lightning_modules.bases.geometry import Spans

_CELLS = 4  # cells measured in one backward pass, each on its own copy of the image
_SCALE = 1e20  # of the gradients, so that the faintest path through a deep network stays above the least float32


def measured_fields(net: nn.Module, image_size: tuple[int, int], grid: tuple[int, int]) -> tuple[Spans, Spans]:
    """The pixels that the rows and the columns of cells depend on, for whatever weights the network may have.

    A copy of the network gets random weights, so that no weight is zero by initialisation or training, with BatchNorm
    statistics that fit them; then a cell depends on a pixel exactly if the gradient of its features at a random image
    is not zero there. Convolution arithmetic gives the same where it applies, and knows nothing of attention,
    squeeze-and-excite and global normalisation. Measured are the cells on the diagonal, whose rows and columns are
    taken to be those of all cells, or just the first and the last if both depend on the whole image.

    Args:
        net: (B, 3, H, W) -> (B, D, h, w); not changed.
        image_size: (H, W) pixels.
        grid: (h, w) cells.

    Returns:
        First and last pixel, both inclusive, of each of the h rows and the w columns.
    """
    (height, width), (rows, cols) = image_size, grid
    longest = max(rows, cols)
    diagonal = [(i * rows // longest, i * cols // longest) for i in range(longest)]
    with torch.inference_mode(False), torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(0)
        image = torch.rand(1, 3, height, width)
        drawn = redrawn(net, image)
        corners = _extents(drawn, image, [diagonal[0], (rows - 1, cols - 1)])
        if corners == [((0, height - 1), (0, width - 1))] * 2:
            return [(0, height - 1)] * rows, [(0, width - 1)] * cols
        extents = dict(zip(diagonal, _extents(drawn, image, diagonal), strict=True))
    by_row = {row: extent for (row, _), (extent, _) in extents.items()}
    by_col = {col: extent for (_, col), (_, extent) in extents.items()}
    return [by_row[row] for row in range(rows)], [by_col[col] for col in range(cols)]


def redrawn(net: nn.Module, image: Tensor | None = None) -> nn.Module:
    """A copy in evaluation mode whose weights are random and keep the variance of what passes through them.

    Args:
        net: not changed.
        image: ``(1, 3, H, W)`` float for which the statistics of BatchNorm are taken; None leaves them.
    """
    drawn = copy.deepcopy(net).to("cpu", torch.float32)
    with torch.no_grad():
        for parameter in drawn.parameters():
            parameter.requires_grad_(False)
            if parameter.dim() > 1:
                parameter.normal_(0, parameter[0].numel() ** -0.5)
            else:
                parameter.uniform_(0.5, 1.5)
        norms = [module for module in drawn.modules() if isinstance(module, _BatchNorm)]
        if norms and image is not None:
            for module in norms:
                module.momentum = 1.0
            drawn.train()(torch.cat([image, 1 - image]))
    return drawn.eval()


def _extents(
    net: nn.Module, image: Tensor, cells: list[tuple[int, int]]
) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """First and last row, and first and last column, of the pixels that each cell depends on."""
    extents = []
    for first in range(0, len(cells), _CELLS):
        some = cells[first : first + _CELLS]
        images = image.repeat(len(some), 1, 1, 1).requires_grad_()
        features = net(images)
        rows, cols = torch.tensor(some).unbind(1)
        at_cells = features[torch.arange(len(some)), :, rows, cols]
        (gradient,) = torch.autograd.grad((_SCALE * at_cells * torch.randn_like(at_cells[0])).sum(), images)
        for reached in (gradient != 0).any(dim=1):
            extents.append((_first_and_last(reached.any(dim=1)), _first_and_last(reached.any(dim=0))))
    return extents


def _first_and_last(reached: Tensor) -> tuple[int, int]:
    indices = reached.nonzero().flatten().tolist()
    return indices[0], indices[-1]
