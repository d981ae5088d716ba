"""How far explanations move under a perturbation: their peaks, active regions and highlighted regions."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from metrics.base import ImageMean
from metrics.change.both_perturbations import both_perturbations
from metrics.entry import MetricEntry, Words
from metrics.primitives.boxes import bounding_boxes
from metrics.primitives.checks import check_choice, check_quantile, check_tensor, check_threshold
from metrics.primitives.intersection_over_union import box_intersection_over_union, mask_intersection_over_union
from metrics.primitives.peaks import peak_cells
from metrics.primitives.regions import all_finite, binarize_maps, clip_saliency, clipped_range

Region = Literal["box", "mask"]


def _check_pair(name: str, maps: Tensor, perturbed_maps: Tensor) -> None:
    check_tensor(name, maps, ("B", "k", "H", "W"), "float")
    check_tensor(f"perturbed_{name}", perturbed_maps, tuple(maps.shape), "float")


def _peaks(maps: Tensor) -> Tensor:
    """Peak cells as ``(B, k, 2)`` float64; NaN where a map is not finite."""
    return peak_cells(maps).double().masked_fill(~all_finite(maps)[..., None], torch.nan)


def _distance(peaks: Tensor, other: Tensor) -> Tensor:
    return (peaks - other).abs().sum(dim=-1)


def prototype_location_change(maps: Tensor, perturbed_maps: Tensor, relative: bool = False) -> Tensor:
    """Distance by which the peak of each map moves, in cells along both axes.

    Source: Schlinge et al. (2025), equation 8: ``|x - x'| + |y - y'|`` between the peak cells. Ties go to the first
    cell in row-major order, which is also the peak of a flat map.

    Args:
        maps: ``(B, k, h, w)`` float.
        perturbed_maps: ``(B, k, h, w)`` float, of the same units on the perturbed image.
        relative: divide by ``(h - 1) + (w - 1)``, so that grids of different size compare.

    Returns:
        ``(B, k)`` float64 >= 0, lower is better; NaN where a map is not finite.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> maps = torch.tensor([[[[0.0, 2.0, 2.0], [2.0, 0.0, 0.0]]]])
        >>> prototype_location_change(maps, maps.flip(-1, -2))  # from (1, 0) to (2, 0), of three cells that tie
        tensor([[1.]], dtype=torch.float64)
    """
    _check_pair("maps", maps, perturbed_maps)
    distance = _distance(_peaks(maps), _peaks(perturbed_maps))
    return distance / (maps.shape[2] + maps.shape[3] - 2) if relative else distance


def prototype_activation_location_change(maps: Tensor, perturbed_maps: Tensor, threshold: float = 0.5) -> Tensor:
    """Change of the region above half of the range of each map.

    Source: Schlinge et al. (2025), equation 9: 1 - IoU of both maps, each binarised on its own by
    :func:`~metrics.functional.binarize_maps`.

    Args:
        maps: ``(B, k, h, w)`` float.
        perturbed_maps: ``(B, k, h, w)`` float, of the same units on the perturbed image.
        threshold: in [0, 1), of the min-max scaled map.

    Returns:
        ``(B, k)`` float64 in [0, 1], lower is better; NaN where a map is flat or not finite.

    Raises:
        ValueError: if ``threshold`` is outside [0, 1) or a shape or dtype differs from the above.

    Example:
        >>> maps, perturbed = torch.tensor([[0.0, 1.0], [0.6, 0.2]]), torch.tensor([[1.0, 0.9], [0.0, 0.0]])
        >>> prototype_activation_location_change(maps[None, None], perturbed[None, None])
        tensor([[0.6667]], dtype=torch.float64)
    """
    _check_pair("maps", maps, perturbed_maps)
    return 1 - mask_intersection_over_union(binarize_maps(maps, threshold), binarize_maps(perturbed_maps, threshold))


def visualization_location_change(saliency: Tensor, perturbed_saliency: Tensor, region: Region = "box") -> Tensor:
    """Change of the highlighted region of each unit, or of the box around it.

    Source: Schlinge et al. (2025), equation 4, after Sacha et al. (2024): 1 - IoU. The region is where the clipped
    saliency (:func:`~metrics.functional.clip_saliency`) is positive.

    Args:
        saliency: ``(B, k, H, W)`` float >= 0, clipped.
        perturbed_saliency: ``(B, k, H, W)`` float >= 0, of the same units on the perturbed image, clipped.
        region: compare the boxes around the regions, or the regions (``"mask"``).

    Returns:
        ``(B, k)`` float64 in [0, 1], lower is better; NaN where a region is empty or a map is not finite.

    Raises:
        ValueError: if ``region`` is unknown, a shape or dtype differs from the above or a map is negative somewhere.

    Example:
        >>> saliency = torch.eye(3)[None, None]
        >>> perturbed = torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])[None, None]
        >>> visualization_location_change(saliency, perturbed)  # one pixel of a box of nine
        tensor([[0.8889]], dtype=torch.float64)
        >>> visualization_location_change(saliency, perturbed, region="mask")
        tensor([[0.6667]], dtype=torch.float64)
    """
    check_choice("region", region, get_args(Region))
    _check_pair("saliency", saliency, perturbed_saliency)
    masks, other = saliency > 0, perturbed_saliency > 0
    if region == "box":
        shared = box_intersection_over_union(bounding_boxes(masks), bounding_boxes(other))
    else:
        shared = mask_intersection_over_union(masks, other)
    ranges = clipped_range("saliency", saliency), clipped_range("perturbed_saliency", perturbed_saliency)
    finite, other_finite = (low.isfinite() & high.isfinite() for low, high in ranges)
    return (1 - shared).masked_fill(~(finite & other_finite), torch.nan)


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


PLC = both_perturbations(
    "plc",
    PrototypeLocationChange,
    Words(
        question="How many cells does the peak of a unit move?",
        name="Prototype location change",
        formula="mean distance abs(x − x′) + abs(y − y′) of the peaks, with noise outside the unit's region",
        source="[S25] 8",
        misread="In cells of the grid: models with other grids do not compare. Not the `plc` of contrastivity or "
        "misalignment.",
    ),
    formula="as in completeness, between the image and its photometric perturbation",
    misread="The whole image changes slightly here, its background only in completeness: the two do not compare.",
)
PALC = both_perturbations(
    "palc",
    PrototypeActivationLocationChange,
    Words(
        question="How far does the region of high scores of a unit move?",
        name="Prototype activation location change",
        formula="mean of 1 − IoU of the cells above half of the range of each map",
        source="[S25] 9",
        misread="Maps are scaled to their range first: the noise of a nearly flat map counts like a peak.",
    ),
    misread="A model that ignores the image has 0, the best value, in all of continuity.",
)
VLC = MetricEntry(
    "completeness/vlc",
    VisualizationLocationChange,
    Words(
        question="How far does the box of what a unit saw most of move?",
        name="Visualization location change",
        formula="mean of 1 − IoU(b, b′), the boxes around the top 5 % of relevance, without and with noise outside b",
        source="[S25] 4, [S24]",
        misread="It measures the explainer as much as the model; an explainer that ignores the image has 0.",
    ),
    lambda facts: VisualizationLocationChange(quantile=None),
    needs=("explainer",),
    view="completeness",
)
