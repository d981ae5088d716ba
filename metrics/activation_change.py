"""How much activations change under a perturbation: of units, of their saliency, and of classes."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from metrics.functional.activation_change import (
    Link,
    _check_link,
    classification_activation_change,
    prototype_activation_change,
    visualization_activation_change,
)
from metrics.functional.primitives.checks import check_quantile
from metrics.functional.primitives.regions import clip_saliency
from metrics.functional.primitives.variants import Variant, check_variant
from metrics.image_mean import ImageMean


class PrototypeActivationChange(ImageMean):
    """Mean change of the maps of the top units, cell by cell.

    Source and definition: :func:`metrics.functional.prototype_activation_change`. Interval: normal over images.

    Args:
        variant: reading of the formula.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: if ``variant`` is unknown.

    Example:
        >>> import torch
        >>> metric = PrototypeActivationChange()
        >>> metric.update(torch.tensor([[[[3.0, 1.0]]]]), torch.tensor([[[[1.0, 3.0]]]]))
        >>> metric.compute()
        tensor(0.6667, dtype=torch.float64)
    """

    name = "pac"
    unit = "fraction"
    reads = ("maps", "perturbed_maps", "valid")
    higher_is_better = False

    def __init__(self, variant: Variant = "paper", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_variant(variant)
        self.variant: Variant = variant

    def update(self, maps: Tensor, perturbed_maps: Tensor, valid: Tensor | None = None) -> None:
        """Add a batch.

        Args:
            maps: ``(B, k, h, w)`` float.
            perturbed_maps: ``(B, k, h, w)`` float.
            valid: ``(B, k)`` bool; None for all.
        """
        self._accumulate(prototype_activation_change(maps, perturbed_maps, self.variant), valid)


class VisualizationActivationChange(ImageMean):
    """Mean change of the values in the highlighted regions of the top units.

    Source and definition: :func:`metrics.functional.visualization_activation_change`. Interval: normal over images.

    Args:
        quantile: of :func:`metrics.functional.clip_saliency`; None if the saliency is clipped already.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: if ``quantile`` is outside (0, 1).

    Example:
        >>> import torch
        >>> metric = VisualizationActivationChange(quantile=0.5)
        >>> saliency = torch.tensor([[[[1.0, 2.0, 3.0, 4.0]]]])
        >>> metric.update(saliency, 2 * saliency)
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    name = "vac"
    unit = "fraction"
    reads = ("saliency", "perturbed_saliency", "valid")
    higher_is_better = False

    def __init__(self, quantile: float | None = 0.95, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_quantile(quantile)
        self.quantile = quantile

    def update(self, saliency: Tensor, perturbed_saliency: Tensor, valid: Tensor | None = None) -> None:
        """Add a batch.

        Args:
            saliency: ``(B, k, H, W)`` float, signed; clipped if ``quantile`` is None.
            perturbed_saliency: ``(B, k, H, W)`` float, alike.
            valid: ``(B, k)`` bool; None for all.
        """
        if self.quantile is not None:
            saliency = clip_saliency(saliency, self.quantile)
            perturbed_saliency = clip_saliency(perturbed_saliency, self.quantile)
        self._accumulate(visualization_activation_change(saliency, perturbed_saliency), valid)


class ClassificationActivationChange(ImageMean):
    """Mean change of the probabilities of the classes.

    Source and definition: :func:`metrics.functional.classification_activation_change`. Interval: normal over images.

    Args:
        link: from logits to probabilities; ``"sigmoid"`` for several labels per image.
        variant: reading of the formula.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: if ``link`` or ``variant`` is unknown.

    Example:
        >>> import torch
        >>> metric = ClassificationActivationChange()
        >>> metric.update(torch.tensor([[0.5, 0.3, 0.2]]).log(), torch.tensor([[0.3, 0.5, 0.2]]).log())
        >>> metric.compute()
        tensor(0.3333, dtype=torch.float64)
    """

    name = "cac"
    unit = "fraction"
    reads = ("logits", "perturbed_logits")
    higher_is_better = False

    def __init__(self, link: Link = "softmax", variant: Variant = "paper", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        _check_link(link)
        check_variant(variant)
        self.link: Link = link
        self.variant: Variant = variant

    def update(self, logits: Tensor, perturbed_logits: Tensor) -> None:
        """Add a batch.

        Args:
            logits: ``(B, K)`` float.
            perturbed_logits: ``(B, K)`` float.
        """
        self._accumulate(classification_activation_change(logits, perturbed_logits, self.link, self.variant))
