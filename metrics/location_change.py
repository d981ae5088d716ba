"""How far explanations move: under a perturbation (change), and between the units of one image (contrast)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from metrics.functional.location_change import (
    Region,
    _check_region,
    prototype_activation_location_change,
    prototype_activation_location_contrast,
    prototype_location_change,
    prototype_location_contrast,
    visualization_location_change,
)
from metrics.functional.primitives.checks import check_quantile, check_threshold
from metrics.functional.primitives.regions import clip_saliency
from metrics.image_mean import ImageMean


class PrototypeLocationChange(ImageMean):
    """Mean distance by which the peaks of the top units move, in cells.

    Source and definition: :func:`metrics.functional.prototype_location_change`. Interval: normal over images.

    Args:
        relative: divide by the largest distance on the grid; the unit becomes a fraction.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Example:
        >>> import torch
        >>> metric = PrototypeLocationChange()
        >>> maps = torch.tensor([[[[0.0, 2.0, 0.0], [0.0, 0.0, 0.0]]]])
        >>> metric.update(maps, maps.flip(-1, -2))
        >>> metric.compute()
        tensor(1., dtype=torch.float64)
    """

    name = "plc"
    unit = "cells"
    reads = ("maps", "perturbed_maps", "valid")
    higher_is_better = False

    def __init__(self, relative: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.relative = relative
        self.unit = "fraction" if relative else "cells"

    def update(self, maps: Tensor, perturbed_maps: Tensor, valid: Tensor | None = None) -> None:
        """Add a batch.

        Args:
            maps: ``(B, k, h, w)`` float.
            perturbed_maps: ``(B, k, h, w)`` float.
            valid: ``(B, k)`` bool; None for all.
        """
        self._accumulate(prototype_location_change(maps, perturbed_maps, self.relative), valid)


class PrototypeActivationLocationChange(ImageMean):
    """Mean of how little the active regions of the top units share with those on the perturbed image.

    Source and definition: :func:`metrics.functional.prototype_activation_location_change`. Interval: normal over
    images.

    Args:
        threshold: in [0, 1), of the min-max scaled map.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: if ``threshold`` is outside [0, 1).

    Example:
        >>> import torch
        >>> metric = PrototypeActivationLocationChange()
        >>> metric.update(torch.tensor([[[[0.0, 1.0, 1.0]]]]), torch.tensor([[[[0.0, 0.0, 1.0]]]]))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    name = "palc"
    unit = "fraction"
    reads = ("maps", "perturbed_maps", "valid")
    higher_is_better = False

    def __init__(self, threshold: float = 0.5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_threshold(threshold)
        self.threshold = threshold

    def update(self, maps: Tensor, perturbed_maps: Tensor, valid: Tensor | None = None) -> None:
        """Add a batch.

        Args:
            maps: ``(B, k, h, w)`` float.
            perturbed_maps: ``(B, k, h, w)`` float.
            valid: ``(B, k)`` bool; None for all.
        """
        self._accumulate(prototype_activation_location_change(maps, perturbed_maps, self.threshold), valid)


class VisualizationLocationChange(ImageMean):
    """Mean of how little the highlighted regions of the top units share with those on the perturbed image.

    Source and definition: :func:`metrics.functional.visualization_location_change`. Interval: normal over images.

    Args:
        quantile: of :func:`metrics.functional.clip_saliency`; None if the saliency is clipped already.
        region: compare the boxes around the regions, or the regions (``"mask"``).
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: if ``quantile`` is outside (0, 1) or ``region`` is unknown.

    Example:
        >>> import torch
        >>> metric = VisualizationLocationChange(quantile=0.5)
        >>> saliency = torch.tensor([[[[1.0, 2.0, 3.0, 4.0]]]])
        >>> metric.update(saliency, saliency.roll(1, -1))  # pixels 2 and 3 against 0 and 3
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    name = "vlc"
    unit = "fraction"
    reads = ("saliency", "perturbed_saliency", "valid")
    higher_is_better = False

    def __init__(self, quantile: float | None = 0.95, region: Region = "box", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_quantile(quantile)
        _check_region(region)
        self.quantile = quantile
        self.region: Region = region

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
        self._accumulate(visualization_location_change(saliency, perturbed_saliency, self.region), valid)


class PrototypeLocationContrast(ImageMean):
    """Mean distance between the peaks of the top units of an image, in cells.

    Source and definition: :func:`metrics.functional.prototype_location_contrast`. Interval: normal over images.

    Args:
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Example:
        >>> import torch
        >>> metric = PrototypeLocationContrast()
        >>> metric.update(torch.tensor([[[[1.0, 0.0, 0.0]], [[0.0, 0.0, 1.0]]]]))
        >>> metric.compute()
        tensor(2., dtype=torch.float64)
    """

    name = "plc"
    unit = "cells"
    reads = ("maps",)
    higher_is_better = True

    def update(self, maps: Tensor) -> None:
        """Add a batch.

        Args:
            maps: ``(B, k, h, w)`` float.
        """
        self._accumulate(prototype_location_contrast(maps))


class PrototypeActivationLocationContrast(ImageMean):
    """Mean of how little the active regions of the top units of an image share.

    Source and definition: :func:`metrics.functional.prototype_activation_location_contrast`. Interval: normal over
    images.

    Args:
        threshold: in [0, 1), of the min-max scaled map.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: if ``threshold`` is outside [0, 1).

    Example:
        >>> import torch
        >>> metric = PrototypeActivationLocationContrast()
        >>> metric.update(torch.tensor([[[[1.0, 1.0, 0.0]], [[0.0, 1.0, 0.0]]]]))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    name = "palc"
    unit = "fraction"
    reads = ("maps",)
    higher_is_better = True

    def __init__(self, threshold: float = 0.5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_threshold(threshold)
        self.threshold = threshold

    def update(self, maps: Tensor) -> None:
        """Add a batch.

        Args:
            maps: ``(B, k, h, w)`` float.
        """
        self._accumulate(prototype_activation_location_contrast(maps, self.threshold))
