"""The part of a head that metrics of its size look at."""

from __future__ import annotations

import math

from torch import Tensor

from protometry.metrics.primitives.checks import check_tensor


def check_negligible(threshold: float) -> None:
    """Refuse a magnitude that is negative or not finite, with a ``ValueError``."""
    if not 0 <= threshold < math.inf:
        raise ValueError(f"Expected argument `threshold` to be finite and at least 0, but got {threshold}.")


def active_columns(matrix: Tensor, active: Tensor | None, name: str = "weight") -> Tensor:
    """The columns of the active units of a ``(K, U)`` float matrix; all if ``active`` is None."""
    check_tensor(name, matrix, ("K", "U"), "float")
    if active is None:
        return matrix
    check_tensor("active", active, (matrix.shape[1],), "bool")
    return matrix[:, active]


def finite_columns(matrix: Tensor, active: Tensor | None, name: str = "weight") -> Tensor:
    """As :func:`active_columns`, but refuse entries that are not finite, with a ``ValueError``."""
    columns = active_columns(matrix, active, name)
    if not columns.isfinite().all():
        raise ValueError(f"Expected argument `{name}` to be finite in active columns, but got NaN or infinity.")
    return columns
