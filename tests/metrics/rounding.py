"""Error model of the tests: every floating-point operation rounds, and the errors add up at worst."""

from __future__ import annotations

import torch


def rounding(operations: int, scale: float = 1.0, dtype: torch.dtype = torch.float32) -> float:
    """Bound on the error of a result.

    A rounded operation is off by at most half the spacing of floats at its result, ``eps / 2`` relative to its size. A
    library may order, fuse or vectorise operations as it likes, but it cannot need more roundings than operations.

    Args:
        operations: rounded operations between the inputs and the result, rounding of the inputs included.
        scale: largest magnitude on the way.
        dtype: of the operations.
    """
    return operations * torch.finfo(dtype).eps / 2 * scale
