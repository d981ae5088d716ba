"""Loss terms, each a mean over images in float32; models name them, phase plans weigh them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def cross_entropy(logits: Tensor, labels: Tensor, class_targets: Tensor | None = None) -> Tensor:
    """Cross-entropy, with soft targets where an image is compatible with several classes.

    Source: soft targets as Hesse et al. 2023 (FunnyBirds): 1/|T| on the classes T that agree with the visible parts.

    Args:
        logits: ``(B, K)`` float.
        labels: ``(B,)`` int64, used if ``class_targets`` is None.
        class_targets: ``(B, K)`` float, rows sum to 1.

    Returns:
        Scalar >= 0, lower is better.

    Example:
        >>> round(cross_entropy(torch.zeros(2, 4), torch.tensor([0, 3])).item(), 4)
        1.3863
    """
    return F.cross_entropy(logits.float(), labels if class_targets is None else class_targets)


def cluster(distances: Tensor, own: Tensor) -> Tensor:
    """Mean distance to the nearest prototype of the own class.

    Source: Chen et al. 2019 (ProtoPNet), cluster cost. Deviation: the exact minimum; the released code's
    ``max((D - d) * mask)`` is wrong where distances exceed the channel count D.

    Args:
        distances: ``(B, U)`` float, smallest distance of every prototype to a patch of the image.
        own: ``(B, U)`` bool, the prototype belongs to the class of the image.

    Returns:
        Scalar >= 0, lower is better; images without an own prototype are left out (0 if there is none at all).

    Example:
        >>> cluster(torch.tensor([[150.0, 170.0, 1.0]]), torch.tensor([[True, True, False]])).item()
        150.0
    """
    nearest = distances.float().masked_fill(~own, torch.inf).amin(dim=1)
    counted = own.any(dim=1)
    return torch.where(counted, nearest, 0.0).sum() / counted.sum().clamp_min(1)


def separation(distances: Tensor, own: Tensor) -> Tensor:
    """Mean distance to the nearest prototype of another class; enters with a negative coefficient.

    Source: Chen et al. 2019 (ProtoPNet), separation cost; deviation as for :func:`cluster`.

    Args:
        distances: ``(B, U)`` float.
        own: ``(B, U)`` bool.

    Returns:
        Scalar >= 0, higher is better.

    Example:
        >>> separation(torch.tensor([[150.0, 170.0, 1.0]]), torch.tensor([[True, True, False]])).item()
        1.0
    """
    return cluster(distances, ~own)


def off_class_l1(weight: Tensor, owner: Tensor) -> Tensor:
    """Sum of absolute head weights between classes and prototypes they do not own.

    Source: Chen et al. 2019 (ProtoPNet), convex optimisation of the last layer.

    Args:
        weight: ``(K, U)`` float.
        owner: ``(U, K)`` bool.

    Returns:
        Scalar >= 0, summed, not averaged.

    Example:
        >>> off_class_l1(torch.tensor([[1.0, -0.5], [-0.25, 1.0]]), torch.eye(2, dtype=torch.bool)).item()
        0.75
    """
    return weight.float().abs().masked_fill(owner.T, 0.0).sum()
