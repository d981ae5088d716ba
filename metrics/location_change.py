"""Distances between explanations: under a perturbation (change) and between the units of one image (contrast)."""

from __future__ import annotations

import math
from typing import Any, get_args

from torch import Tensor

from metrics.base import ImageMean
from metrics.functional.location_change import (
    Region,
    prototype_activation_location_change,
    prototype_activation_location_contrast,
    prototype_location_change,
    prototype_location_contrast,
    visualization_location_change,
)
from metrics.functional.primitives.checks import check_choice, check_quantile, check_threshold
from metrics.functional.primitives.regions import clip_saliency


class PrototypeLocationChange(ImageMean):
    """Mean distance by which the peaks of the top-k units move (PLC, lower is better).

    Source: Schlinge et al. (2025), equation 8: ``|x - x'| + |y - y'|`` between the cells of the maxima of ``maps`` and
    of ``perturbed_maps``. Ties go to the first cell in row-major order, which is also the peak of a flat map.

    Args:
        relative: divide by the largest distance on the grid, ``(h - 1) + (w - 1)``; the unit becomes a fraction.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        maps: ``(B, k, h, w)`` float, maps of the top-k units on the clean images.
        perturbed_maps: ``(B, k, h, w)`` float, maps of the same units on the perturbed images.
        valid: ``(B, k)`` bool, False where the perturbation was undefined; None for all.

    Example:
        >>> import torch
        >>> metric = PrototypeLocationChange()
        >>> maps = torch.tensor([[[[0.0, 2.0, 0.0], [0.0, 0.0, 0.0]]]])
        >>> metric.update(maps, maps.flip(-1, -2))  # one row down
        >>> metric.compute()
        tensor(1., dtype=torch.float64)
    """

    name = "plc"
    unit = "cells"
    value_range = (0.0, math.inf)
    reads = ("maps", "perturbed_maps", "valid")
    higher_is_better = False

    def __init__(self, relative: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.relative = relative
        self.unit = "fraction" if relative else "cells"
        self.value_range = (0.0, 1.0 if relative else math.inf)

    def update(self, maps: Tensor, perturbed_maps: Tensor, valid: Tensor | None = None) -> None:
        """Add a batch."""
        self._accumulate(prototype_location_change(maps, perturbed_maps, self.relative), valid)


class PrototypeActivationLocationChange(ImageMean):
    """Mean change of the active regions of the top-k units (PALC, lower is better).

    Source: Schlinge et al. (2025), equation 9: ``1 - IoU(b, b')``, with b and b' the cells of ``maps`` and
    ``perturbed_maps`` where ``(v - min) / (max - min) > threshold``, each map on its own. Undefined where a map is
    flat.

    Args:
        threshold: in [0, 1), of the min-max scaled map.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        maps: ``(B, k, h, w)`` float, maps of the top-k units on the clean images.
        perturbed_maps: ``(B, k, h, w)`` float, maps of the same units on the perturbed images.
        valid: ``(B, k)`` bool, False where the perturbation was undefined; None for all.

    Raises:
        ValueError: if ``threshold`` is outside [0, 1).

    Example:
        >>> import torch
        >>> metric = PrototypeActivationLocationChange()
        >>> metric.update(torch.tensor([[[[0.0, 1.0, 1.0]]]]), torch.tensor([[[[0.0, 0.0, 1.0]]]]))  # 1 of 2 cells
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    name = "palc"
    unit = "fraction"
    value_range = (0.0, 1.0)
    reads = ("maps", "perturbed_maps", "valid")
    higher_is_better = False

    def __init__(self, threshold: float = 0.5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_threshold(threshold)
        self.threshold = threshold

    def update(self, maps: Tensor, perturbed_maps: Tensor, valid: Tensor | None = None) -> None:
        """Add a batch."""
        self._accumulate(prototype_activation_location_change(maps, perturbed_maps, self.threshold), valid)


class VisualizationLocationChange(ImageMean):
    """Mean change of the highlighted regions of the top-k units (VLC, lower is better).

    Source: Schlinge et al. (2025), equation 4, after Sacha et al. (2024): ``1 - IoU(b, b')``, with b and b' the boxes
    around the pixels where the clipped ``saliency`` and ``perturbed_saliency`` are positive. Undefined where a region
    is empty.

    Args:
        quantile: of each map, above which positive saliency is kept; None if the inputs are clipped already.
        region: compare the boxes around the regions (``"box"``) or the regions themselves (``"mask"``).
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        saliency: ``(B, k, H, W)`` float, signed, of the top-k units on the clean images.
        perturbed_saliency: ``(B, k, H, W)`` float, of the same units on the perturbed images.
        valid: ``(B, k)`` bool, False where the perturbation was undefined; None for all.

    Raises:
        ValueError: if ``quantile`` is outside (0, 1) or ``region`` is unknown.

    Example:
        >>> import torch
        >>> metric = VisualizationLocationChange(quantile=0.5)
        >>> saliency = torch.tensor([[[[1.0, 2.0, 3.0, 4.0]]]])
        >>> metric.update(saliency, saliency.roll(1, -1))  # boxes of pixels 2 to 3 and 0 to 3
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    name = "vlc"
    unit = "fraction"
    value_range = (0.0, 1.0)
    reads = ("saliency", "perturbed_saliency", "valid")
    higher_is_better = False

    def __init__(self, quantile: float | None = 0.95, region: Region = "box", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_quantile(quantile)
        check_choice("region", region, get_args(Region))
        self.quantile = quantile
        self.region: Region = region

    def update(self, saliency: Tensor, perturbed_saliency: Tensor, valid: Tensor | None = None) -> None:
        """Add a batch."""
        if self.quantile is not None:
            saliency = clip_saliency(saliency, self.quantile)
            perturbed_saliency = clip_saliency(perturbed_saliency, self.quantile)
        self._accumulate(visualization_location_change(saliency, perturbed_saliency, self.region), valid)


class PrototypeLocationContrast(ImageMean):
    """Mean distance between the peaks of the top-k units of an image (higher is better).

    Source: Schlinge et al. (2025), section 5.3: ``|x_i - x_j| + |y_i - y_j|`` between the cells of the maxima of
    ``maps``, averaged over the ``k (k - 1) / 2`` pairs of units of the image. Undefined for a single unit.

    Args:
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        maps: ``(B, k, h, w)`` float, maps of the top-k units; distances are in their cells.

    Example:
        >>> import torch
        >>> metric = PrototypeLocationContrast()
        >>> metric.update(torch.tensor([[[[1.0, 0.0, 0.0]], [[0.0, 0.0, 1.0]]]]))
        >>> metric.compute()
        tensor(2., dtype=torch.float64)
    """

    name = "plc"
    unit = "cells"
    value_range = (0.0, math.inf)
    reads = ("maps",)
    higher_is_better = True

    def update(self, maps: Tensor) -> None:
        """Add a batch."""
        self._accumulate(prototype_location_contrast(maps))


class PrototypeActivationLocationContrast(ImageMean):
    """Mean dissimilarity of the active regions of the top-k units of an image (higher is better).

    Source: Schlinge et al. (2025), section 5.3: ``1 - IoU(b_i, b_j)``, with b_i the cells of map i where
    ``(v - min) / (max - min) > threshold``, averaged over the pairs of units of the image of which neither map is flat.
    Undefined without such a pair.

    Args:
        threshold: in [0, 1), of the min-max scaled map.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        maps: ``(B, k, h, w)`` float, maps of the top-k units.

    Raises:
        ValueError: if ``threshold`` is outside [0, 1).

    Example:
        >>> import torch
        >>> metric = PrototypeActivationLocationContrast()
        >>> metric.update(torch.tensor([[[[1.0, 1.0, 0.0]], [[0.0, 1.0, 0.0]]]]))  # one cell of two in common
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    name = "palc"
    unit = "fraction"
    value_range = (0.0, 1.0)
    reads = ("maps",)
    higher_is_better = True

    def __init__(self, threshold: float = 0.5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_threshold(threshold)
        self.threshold = threshold

    def update(self, maps: Tensor) -> None:
        """Add a batch."""
        self._accumulate(prototype_activation_location_contrast(maps, self.threshold))
