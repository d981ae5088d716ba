"""Changes of activations under a perturbation: of prototype maps, of their saliency and of class probabilities."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from metrics.base import ImageMean
from metrics.change.both_perturbations import both_perturbations
from metrics.entry import MetricEntry, Words
from metrics.primitives.checks import check_choice, check_quantile, check_tensor
from metrics.primitives.intersection_over_union import weighted_intersection_over_union
from metrics.primitives.regions import all_finite, clip_saliency, clipped_range, count_pixels
from metrics.primitives.variants import Variant, check_variant

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


class PrototypeActivationChange(ImageMean):
    """Mean change of the maps of the top-k units, cell by cell (PAC, lower is better).

    Source: Schlinge et al. (2025), equation 10: ``1 - Σ min(a, a') / Σ max(a, a')`` over the cells, with a = ``maps``
    and a' = ``perturbed_maps``, negative values set to 0. Undefined where no cell is positive. With
    ``variant="quanproto"`` both maps are sorted first, which ignores where the activation lies.

    Args:
        variant: reading of the formula.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        maps: ``(B, k, h, w)`` float, maps of the top-k units on the clean images.
        perturbed_maps: ``(B, k, h, w)`` float, maps of the same units on the perturbed images.
        valid: ``(B, k)`` bool, False where the perturbation was undefined; None for all.

    Raises:
        ValueError: if ``variant`` is unknown.

    Example:
        >>> import torch
        >>> metric = PrototypeActivationChange()
        >>> metric.update(torch.tensor([[[[3.0, 1.0]]]]), torch.tensor([[[[1.0, 3.0]]]]))  # 1 - (1 + 1) / (3 + 3)
        >>> metric.compute()
        tensor(0.6667, dtype=torch.float64)
    """

    name = "pac"
    unit = "fraction"
    value_range = (0.0, 1.0)
    reads = ("maps", "perturbed_maps", "valid")
    higher_is_better = False

    def __init__(self, variant: Variant = "paper", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_variant(variant)
        self.variant: Variant = variant

    def update(self, maps: Tensor, perturbed_maps: Tensor, valid: Tensor | None = None) -> None:
        """Add a batch."""
        self._accumulate(prototype_activation_change(maps, perturbed_maps, self.variant), valid)


class VisualizationActivationChange(ImageMean):
    """Mean change of the values in the highlighted regions of the top-k units (VAC, lower is better).

    Source: Schlinge et al. (2025), equation 7: ``1 - Σ min(v, v') / Σ max(v, v')``, with v and v' the values of the
    clipped ``saliency`` and ``perturbed_saliency`` sorted in descending order, so that only their size counts, not
    their place. Undefined where a clipped map has no positive value.

    Args:
        quantile: of each map, above which positive saliency is kept; None if the inputs are clipped already.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        saliency: ``(B, k, H, W)`` float, signed, of the top-k units on the clean images.
        perturbed_saliency: ``(B, k, H, W)`` float, of the same units on the perturbed images.
        valid: ``(B, k)`` bool, False where the perturbation was undefined; None for all.

    Raises:
        ValueError: if ``quantile`` is outside (0, 1).

    Example:
        >>> import torch
        >>> metric = VisualizationActivationChange(quantile=0.5)
        >>> saliency = torch.tensor([[[[1.0, 2.0, 3.0, 4.0]]]])  # 3 and 4 are kept
        >>> metric.update(saliency, 2 * saliency)  # 1 - (4 + 3) / (8 + 6)
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    name = "vac"
    unit = "fraction"
    value_range = (0.0, 1.0)
    reads = ("saliency", "perturbed_saliency", "valid")
    higher_is_better = False

    def __init__(self, quantile: float | None = 0.95, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_quantile(quantile)
        self.quantile = quantile

    def update(self, saliency: Tensor, perturbed_saliency: Tensor, valid: Tensor | None = None) -> None:
        """Add a batch."""
        if self.quantile is not None:
            saliency = clip_saliency(saliency, self.quantile)
            perturbed_saliency = clip_saliency(perturbed_saliency, self.quantile)
        self._accumulate(visualization_activation_change(saliency, perturbed_saliency), valid)


class ClassificationActivationChange(ImageMean):
    """Mean change of the class probabilities (CAC, lower is better).

    Source: Schlinge et al. (2025), equation 11: ``1 - Σ min(p, p') / Σ max(p, p')`` over the classes, with p and p' the
    probabilities of ``logits`` and ``perturbed_logits``. With ``variant="quanproto"`` p and p' are the logits
    themselves, sorted in descending order.

    Args:
        link: from logits to probabilities: ``"softmax"``, or ``"sigmoid"`` for multilabel data.
        variant: reading of the formula.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        logits: ``(B, K)`` float, clean images.
        perturbed_logits: ``(B, K)`` float, perturbed images.

    Raises:
        ValueError: if ``link`` or ``variant`` is unknown.

    Example:
        >>> import torch
        >>> metric = ClassificationActivationChange()
        >>> metric.update(torch.tensor([[0.5, 0.3, 0.2]]).log(), torch.tensor([[0.3, 0.5, 0.2]]).log())
        >>> metric.compute()  # 1 - (0.3 + 0.3 + 0.2) / (0.5 + 0.5 + 0.2)
        tensor(0.3333, dtype=torch.float64)
    """

    name = "cac"
    unit = "fraction"
    value_range = (0.0, 1.0)
    reads = ("logits", "perturbed_logits")
    higher_is_better = False

    def __init__(self, link: Link = "softmax", variant: Variant = "paper", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_choice("link", link, get_args(Link))
        check_variant(variant)
        self.link: Link = link
        self.variant: Variant = variant
        if variant == "quanproto":  # of logits, which may be negative
            self.value_range = (-math.inf, math.inf)

    def update(self, logits: Tensor, perturbed_logits: Tensor) -> None:
        """Add a batch."""
        self._accumulate(classification_activation_change(logits, perturbed_logits, self.link, self.variant))


PAC = both_perturbations(
    "pac",
    PrototypeActivationChange,
    Words(
        question="How much do the scores of a unit change over the image?",
        name="Prototype activation change",
        formula="mean of 1 − Σ min(a, a′) / Σ max(a, a′) over cells",
        source="[S25] 10",
        misread="Negative values of a map count as 0. The published tables sorted the cells first (`--variant "
        "quanproto`). Not the `pac` of misalignment.",
    ),
    lambda facts: PrototypeActivationChange(facts.variant),
    misread="As in completeness.",
)
VAC = MetricEntry(
    "completeness/vac",
    VisualizationActivationChange,
    Words(
        question="How much does the relevance of the pixels change?",
        name="Visualization activation change",
        formula="mean of 1 − Σ min(v, v′) / Σ max(v, v′) over sorted relevance",
        source="[S25] 7",
        misread="Relevance may move anywhere without changing it.",
    ),
    lambda facts: VisualizationActivationChange(quantile=None),
    needs=("explainer",),
    view="completeness",
)
CAC = MetricEntry(
    "continuity/cac",
    ClassificationActivationChange,
    Words(
        question="How much do the probabilities of the classes change?",
        name="Classification activation change",
        formula="mean of 1 − Σ min(p, p′) / Σ max(p, p′) over class probabilities",
        source="[S25] 11",
        misread="For t, the total variation distance, it is 2t / (1 + t). The published tables compared sorted raw "
        "logits.",
    ),
    lambda facts: ClassificationActivationChange("sigmoid" if facts.multi_label else "softmax", facts.variant),
    view="continuity",
)
