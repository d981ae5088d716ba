"""Kernels: how similar classes are, by the attributes they have or the weights a model gives them."""

from __future__ import annotations

import torch
from torch import Tensor

from metrics.primitives.checks import check_at_least, check_tensor

_RANKED_DIGITS = 12  # two computations of one cosine differ in later ones


def class_similarity(rows: Tensor) -> Tensor:
    """Cosine similarities of classes.

    Source: Norrenbrock et al. (2025), the matrices S_gt and S_model.

    Args:
        rows: ``(K, A)`` float, what is known of each class: frequencies of attributes, or head weights.

    Returns:
        ``(K, K)`` float64 in [-1, 1] up to rounding; NaN for a class of zeros, or with a value that is not finite.

    Example:
        >>> class_similarity(torch.tensor([[1.0, 0.0], [4.0, 3.0]]))[0, 1]
        tensor(0.8000, dtype=torch.float64)
    """
    rows = rows.double()
    directions: Tensor = rows / rows.norm(dim=1, keepdim=True)
    return directions @ directions.T


def similar_class_pairs(class_attributes: Tensor, pairs: int = 25) -> Tensor:
    """The pairs of classes with the most similar attributes.

    Source: Norrenbrock et al. (2025), the set C_Sim. Cosines are compared to 12 digits; ties go to the pair that comes
    first in row-major order. Pairs with a class without attributes come last.

    Args:
        class_attributes: ``(K, A)`` float >= 0, frequency of each attribute in each class.
        pairs: the most pairs to return, at least 1.

    Returns:
        ``(P, 2)`` int64, most similar first; P = min(pairs, K (K − 1) / 2), and the first class of a pair is the lower.

    Raises:
        ValueError: if a shape or dtype differs from the above or ``pairs`` is below 1.

    Example:
        >>> similar_class_pairs(torch.tensor([[1.0, 0.0], [4.0, 3.0], [0.0, 1.0]]), pairs=2).tolist()
        [[0, 1], [1, 2]]
    """
    check_tensor("class_attributes", class_attributes, ("K", "A"), "float")
    check_at_least("pairs", pairs, 1)
    classes = len(class_attributes)
    every = torch.triu_indices(classes, classes, offset=1, device=class_attributes.device)
    cosines = class_similarity(class_attributes)[every[0], every[1]].round(decimals=_RANKED_DIGITS)
    order = cosines.nan_to_num(-torch.inf).argsort(descending=True, stable=True)
    return every.T[order[:pairs]]
