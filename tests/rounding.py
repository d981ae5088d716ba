"""The error model of float32: how far two correct computations of one value may lie apart.

A sum of n products is rounded about n times, each time by at most 2**-24 of the partial sum at hand. Kernels differ in
the order of the terms (by instruction set, by batch size, by number of threads), so that the roundings of two
computations are as good as independent: their difference has a standard deviation of about 2**-24 * sqrt(2 n) of the
size of the terms. Layers that follow each other add their n. Among a million values the largest lies five to six
standard deviations out.
"""

from __future__ import annotations

from torch import Tensor, nn

UNIT_ROUNDOFF = 2.0**-24
STANDARD_DEVIATIONS = 6


def tolerance(terms: int, size: Tensor | float = 1.0) -> float:
    """Largest difference of two float32 computations that rounding explains.

    Args:
        terms: n, products and sums from the inputs to the value, of all layers one after the other.
        size: the values compared, of which the largest magnitude counts, or that magnitude; 1 for a relative tolerance.
    """
    magnitude = float(size.detach().abs().max()) if isinstance(size, Tensor) else size
    return STANDARD_DEVIATIONS * UNIT_ROUNDOFF * (2 * terms) ** 0.5 * magnitude


def terms_of(model: nn.Module) -> int:
    """Terms that a model sums on the way from its input to its output: those of one output of every layer."""
    return sum(weight[0].numel() for weight in model.parameters() if weight.ndim > 1)
