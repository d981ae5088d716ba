"""Kernels: sizes of the head of a model and of single explanations, the amount a person would have to look at."""

from __future__ import annotations

import torch
from torch import Tensor

from metrics.primitives.checks import check_tensor
from metrics.primitives.variants import Variant, check_variant


def _active_columns(matrix: Tensor, active: Tensor | None, name: str = "weight") -> Tensor:
    if matrix.ndim != 2:
        raise ValueError(f"Expected argument `{name}` to be of shape (K, U), but got {tuple(matrix.shape)}.")
    if active is None:
        return matrix
    check_tensor("active", active, (matrix.shape[1],), "bool")
    return matrix[:, active]


def _check_finite(columns: Tensor, name: str = "weight") -> None:
    if not columns.isfinite().all():
        raise ValueError(f"Expected argument `{name}` to be finite in active columns, but got NaN or infinity.")


def global_size(
    weight: Tensor | None,
    active: Tensor,
    presence: Tensor | None = None,
    threshold: float = 1e-3,
    variant: Variant = "paper",
) -> Tensor:
    """Number of active units that any class uses.

    Source: Schlinge et al. (2025), section 5.5: units u with ``max_c |weight[c, u]| > threshold``. With assigned slots
    (ProtoPool) the units any slot is assigned to. ``variant="quanproto"`` counts positive entries only.

    Args:
        weight: ``(K, U)`` float head weights without bias, or None for a model without them: every active unit counts.
        active: ``(U,)`` bool.
        presence: ``(K, U)`` 0/1 matrix of the hard slot assignment; takes the place of ``weight``.
        threshold: entries above it are used.
        variant: ``"quanproto"`` also takes raw assignment logits as ``presence``, as the published tables did.

    Returns:
        int64 scalar, lower is better.

    Raises:
        ValueError: if a shape or dtype differs from the above, an entry is not finite, or ``presence`` is not 0/1.

    Example:
        >>> weight = torch.tensor([[1.0, 0.0, -0.5, 0.0005], [0.0, 2.0, 0.0, 0.0]])
        >>> global_size(weight, torch.ones(4, dtype=torch.bool))
        tensor(3)
    """
    check_variant(variant)
    name, matrix = ("weight", weight) if presence is None else ("presence", presence)
    if matrix is None:
        check_tensor("active", active, ("U",), "bool")
        return active.sum()
    columns = _active_columns(matrix, active, name)
    _check_finite(columns, name)
    if variant == "quanproto":
        return (columns > threshold).any(dim=0).sum()
    if presence is not None and not ((columns == 0) | (columns == 1)).all():
        raise ValueError("Expected argument `presence` to be a 0/1 assignment, but got other values; take the argmax.")
    used = columns.abs() > threshold if presence is None else columns == 1
    return used.any(dim=0).sum()


def sparsity(weight: Tensor, active: Tensor | None = None, threshold: float = 1e-3) -> Tensor:
    """Share of head weights that are negligible.

    Source: Schlinge et al. (2025), equation 22: ``1 - #{|w| > threshold} / |W|``, over active columns.

    Args:
        weight: ``(K, U)`` float head weights without bias.
        active: ``(U,)`` bool; None for all.
        threshold: magnitude up to which a weight is negligible.

    Returns:
        float64 scalar in [0, 1], higher is better; NaN without active units or with a weight that is not finite.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> sparsity(torch.tensor([[1.0, 0.0, -0.5, 0.0005], [0.0, 2.0, 0.0, 0.0]]))
        tensor(0.6250, dtype=torch.float64)
    """
    columns = _active_columns(weight, active)
    negligible = (columns.abs() <= threshold).double().mean()
    return negligible.masked_fill(~columns.isfinite().all(), torch.nan)


def negative_positive_ratio(weight: Tensor, active: Tensor | None = None, threshold: float = 1e-3) -> Tensor:
    """Negative head weights per positive one.

    Source: Schlinge et al. (2025), equation 23: ``#{w < -threshold} / #{w > threshold}``, over active columns.

    Args:
        weight: ``(K, U)`` float head weights without bias.
        active: ``(U,)`` bool; None for all.
        threshold: magnitude up to which a weight is negligible.

    Returns:
        float64 scalar >= 0, lower is better; NaN without a positive weight or with a weight that is not finite.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> negative_positive_ratio(torch.tensor([[1.0, 0.0, -0.5, 0.0005], [0.0, 2.0, 0.0, 0.0]]))
        tensor(0.5000, dtype=torch.float64)
    """
    columns = _active_columns(weight, active)
    positive = (columns > threshold).sum()
    ratio = (columns < -threshold).sum().double() / positive
    return ratio.masked_fill((positive == 0) | ~columns.isfinite().all(), torch.nan)


def number_of_features(weight: Tensor, active: Tensor | None = None) -> Tensor:
    """Number of units with any non-zero head weight.

    Source: Norrenbrock et al. (2025). No threshold: selected weights are exactly 0 or 1.

    Args:
        weight: ``(K, U)`` float head weights without bias.
        active: ``(U,)`` bool; None for all.

    Returns:
        int64 scalar, lower is better.

    Raises:
        ValueError: if a shape or dtype differs from the above or an entry is not finite.

    Example:
        >>> number_of_features(torch.tensor([[1.0, 0.0, -0.5, 0.0005], [0.0, 2.0, 0.0, 0.0]]))
        tensor(4)
    """
    columns = _active_columns(weight, active)
    _check_finite(columns)
    return (columns != 0).any(dim=0).sum()


def features_per_class(weight: Tensor, active: Tensor | None = None) -> Tensor:
    """Non-zero head weights per class.

    Source: Norrenbrock et al. (2025). No threshold: selected weights are exactly 0 or 1.

    Args:
        weight: ``(K, U)`` float head weights without bias.
        active: ``(U,)`` bool; None for all.

    Returns:
        float64 scalar >= 0, lower is better; NaN without classes or with a weight that is not finite.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> features_per_class(torch.tensor([[1.0, 0.0, -0.5, 0.0005], [0.0, 2.0, 0.0, 0.0]]))
        tensor(2., dtype=torch.float64)
    """
    columns = _active_columns(weight, active)
    return (columns != 0).sum(dim=1).double().mean().masked_fill(~columns.isfinite().all(), torch.nan)


def local_size(scores: Tensor, active: Tensor | None = None, threshold: float = 0.1) -> Tensor:
    """Number of units that matter on an image.

    Source: Schlinge et al. (2025), equations 20 and 21: ``#{u active: scores_u / max scores > threshold}``, compared
    in float64.

    Args:
        scores: ``(B, U)`` float.
        active: ``(U,)`` bool; None for all.
        threshold: share of the largest score.

    Returns:
        ``(B,)`` float64 counts, lower is better; NaN where the largest active score is not positive or one is not
        finite.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> local_size(torch.tensor([[2.0, 1.0, 0.3, 0.19], [-1.0, -2.0, -3.0, -4.0]]))
        tensor([3., nan], dtype=torch.float64)
    """
    check_tensor("scores", scores, ("B", "U"), "float")
    eligible = scores.double()
    finite = eligible.isfinite()
    if active is not None:
        check_tensor("active", active, (scores.shape[1],), "bool")
        finite, eligible = finite | ~active, eligible.masked_fill(~active, -torch.inf)
    best = eligible.amax(dim=1, keepdim=True)
    counts = (eligible / best > threshold).sum(dim=1).double()
    return counts.masked_fill((best.squeeze(1) <= 0) | ~finite.all(dim=1), torch.nan)
