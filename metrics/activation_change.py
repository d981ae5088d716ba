"""Changes of activations under a perturbation: of prototype maps, of their saliency and of class probabilities."""

from __future__ import annotations

import math
from typing import Any, get_args

from torch import Tensor

from metrics.base import ImageMean
from metrics.functional.activation_change import (
    Link,
    classification_activation_change,
    prototype_activation_change,
    visualization_activation_change,
)
from metrics.functional.primitives.checks import check_choice, check_quantile
from metrics.functional.primitives.regions import clip_saliency
from metrics.functional.primitives.variants import Variant, check_variant


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
