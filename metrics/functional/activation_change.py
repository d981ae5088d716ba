"""Kernels: changes of maps, of saliency and of class probabilities under a perturbation."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from metrics.functional.primitives.checks import check_choice, check_tensor
from metrics.functional.primitives.intersection_over_union import weighted_intersection_over_union
from metrics.functional.primitives.regions import all_finite, clipped_range, count_pixels
from metrics.functional.primitives.variants import Variant, check_variant

Link = Literal["softmax", "sigmoid"]


def _change(values: Tensor, other: Tensor, defined: Tensor) -> Tensor:
    return (1 - weighted_intersection_over_union(values, other)).masked_fill(~defined, torch.nan)


def prototype_activation_change(maps: Tensor, perturbed_maps: Tensor, variant: Variant = "paper") -> Tensor:
    """Change of the map of each unit, cell by cell.

    Source: Schlinge et al. (2025), equation 10: ``1 - Σ min(a, a') / Σ max(a, a')`` over the cells. Of signed maps the
    positive part counts. ``variant="quanproto"`` sorts both maps first, which ignores where the activation lies.

    Args:
        maps: ``(B, k, h, w)`` float.
        perturbed_maps: ``(B, k, h, w)`` float, of the same units on the perturbed image.
        variant: reading of the formula.

    Returns:
        ``(B, k)`` float64 in [0, 1], lower is better; NaN where no cell is positive or a map is not finite.

    Raises:
        ValueError: if ``variant`` is unknown or a shape or dtype differs from the above.

    Example:
        >>> maps, perturbed = torch.tensor([[[[0.5, 0.5], [0.0, 0.0]]]]), torch.tensor([[[[0.5, 0.0], [0.5, 0.0]]]])
        >>> prototype_activation_change(maps, perturbed)
        tensor([[0.6667]], dtype=torch.float64)
    """
    check_variant(variant)
    check_tensor("maps", maps, ("B", "k", "h", "w"), "float")
    check_tensor("perturbed_maps", perturbed_maps, tuple(maps.shape), "float")
    both = torch.stack([maps, perturbed_maps]).flatten(start_dim=3)
    defined = all_finite(both, dim=-1).all(dim=0)
    if variant == "quanproto":
        both = both.sort(descending=True).values
    clean, perturbed = both.double().clamp(min=0)
    return _change(clean, perturbed, defined)


def largest_first(clipped: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Both maps as ``(B, k, n)``, sorted, with n large enough for every positive value of either."""
    sides = clipped.flatten(start_dim=2), other.flatten(start_dim=2)
    if clipped.device.type == "cpu" and clipped.numel():
        # About a twentieth of a clipped map is positive. Here it can be counted for free; elsewhere that would make the
        # device wait, so everything is sorted.
        positive = max(int(count_pixels(side > 0).amax()) for side in (clipped, other))
        return sides[0].topk(positive).values, sides[1].topk(positive).values
    return sides[0].sort(descending=True).values, sides[1].sort(descending=True).values


def visualization_activation_change(saliency: Tensor, perturbed_saliency: Tensor) -> Tensor:
    """Change of the values in the highlighted region of each unit, wherever it lies.

    Source: Schlinge et al. (2025), equation 7: ``1 - Σ min(v, v') / Σ max(v, v')`` over the values of the clipped
    saliency (:func:`~metrics.functional.clip_saliency`) sorted in descending order.

    Args:
        saliency: ``(B, k, H, W)`` float >= 0, clipped.
        perturbed_saliency: ``(B, k, H, W)`` float >= 0, of the same units on the perturbed image, clipped.

    Returns:
        ``(B, k)`` float64 in [0, 1], lower is better; NaN where a map has no positive value or is not finite.

    Raises:
        ValueError: if a shape or dtype differs from the above or a map is negative somewhere.

    Example:
        >>> saliency, perturbed = torch.tensor([[[[4.0, 0.0], [0.0, 2.0]]]]), torch.tensor([[[[1.0, 1.0], [0.0, 0.0]]]])
        >>> visualization_activation_change(saliency, perturbed)
        tensor([[0.6667]], dtype=torch.float64)
    """
    check_tensor("saliency", saliency, ("B", "k", "H", "W"), "float")
    check_tensor("perturbed_saliency", perturbed_saliency, tuple(saliency.shape), "float")
    ranges = clipped_range("saliency", saliency), clipped_range("perturbed_saliency", perturbed_saliency)
    defined, other = (low.isfinite() & high.isfinite() & (high > 0) for low, high in ranges)
    return _change(*largest_first(saliency, perturbed_saliency), defined & other)


def classification_activation_change(
    logits: Tensor, perturbed_logits: Tensor, link: Link = "softmax", variant: Variant = "paper"
) -> Tensor:
    """Change of the class probabilities.

    Source: Schlinge et al. (2025), equation 11: ``1 - Σ min(p, p') / Σ max(p, p')`` over the classes. With the softmax
    it equals 2t / (1 + t), where t is the total variation distance; outputs that are log-probabilities pass through it
    unchanged. ``variant="quanproto"`` takes the logits themselves, both sorted in descending order, and is unbounded.

    Args:
        logits: ``(B, K)`` float.
        perturbed_logits: ``(B, K)`` float, on the perturbed image.
        link: from logits to probabilities: ``"softmax"``, or ``"sigmoid"`` for multilabel data.
        variant: reading of the formula.

    Returns:
        ``(B,)`` float64 in [0, 1], lower is better; NaN where a logit is not finite.

    Raises:
        ValueError: if ``link`` or ``variant`` is unknown or a shape or dtype differs from the above.

    Example:
        >>> logits, perturbed = torch.tensor([[0.5, 0.3, 0.2]]).log(), torch.tensor([[0.3, 0.5, 0.2]]).log()
        >>> classification_activation_change(logits, perturbed)
        tensor([0.3333], dtype=torch.float64)
    """
    check_variant(variant)
    check_choice("link", link, get_args(Link))
    check_tensor("logits", logits, ("B", "K"), "float")
    check_tensor("perturbed_logits", perturbed_logits, tuple(logits.shape), "float")
    clean, perturbed = logits.double(), perturbed_logits.double()
    defined = all_finite(clean, dim=1) & all_finite(perturbed, dim=1)
    if variant == "quanproto":
        return _change(clean.sort(descending=True).values, perturbed.sort(descending=True).values, defined)
    if link == "sigmoid":
        return _change(clean.sigmoid(), perturbed.sigmoid(), defined)
    return _change(clean.softmax(dim=1), perturbed.softmax(dim=1), defined)
