"""The error model of floating-point numbers: how far two correct computations of one value may lie apart.

A sum of n products is rounded about n times, each time by at most u of the partial sum at hand (2**-24 in float32,
2**-53 in float64). Kernels differ in the order of the terms (by instruction set, by batch size, by number of threads),
so that the roundings of two computations are as good as independent: their difference has a standard deviation of about
u sqrt(2 n) of the size of the terms. Layers that follow each other add their n. Among a million values the largest lies
five to six standard deviations out. This holds where the computation is continuous: a gradient jumps where rounding
takes the input of a ReLU across 0.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

STANDARD_DEVIATIONS = 6


def tolerance(terms: int, size: Tensor | float = 1.0, dtype: torch.dtype = torch.float32) -> float:
    """Largest difference of two computations that rounding explains.

    Args:
        terms: n, products and sums from the inputs to the value, of all layers one after the other.
        size: the values compared, whose largest magnitude counts, or that magnitude; 1 for a relative tolerance.
        dtype: of both computations.
    """
    magnitude = float(size.detach().abs().max()) if isinstance(size, Tensor) else size
    return STANDARD_DEVIATIONS * torch.finfo(dtype).eps / 2 * (2 * terms) ** 0.5 * magnitude


def terms_of(model: nn.Module) -> int:
    """Terms that a model sums on the way from its input to its output, for one output of every layer."""
    return sum(weight[0].numel() for weight in model.parameters() if weight.ndim > 1)
