"""Pointing games: whether the peak of a map lies on the object, and how much of its positive relevance does."""

from __future__ import annotations

import torch
from torch import Tensor

from protometry.metrics.base import ImageMean
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_saliency
from protometry.metrics.primitives.peaks import peak_cells
from protometry.metrics.primitives.regions import is_flat, value_range


def nothing_to_localise(saliency: Tensor, object_masks: Tensor) -> Tensor:
    """``(B, k)`` bool: a flat, all-negative or non-finite map, or an object that is empty or fills the image."""
    low, high = value_range(saliency)
    pixels = object_masks.flatten(1)
    return is_flat(low, high) | (high <= 0) | (~pixels.any(dim=1) | pixels.all(dim=1))[:, None]


def pointing_game(saliency: Tensor, object_masks: Tensor) -> Tensor:
    """Whether the peak of an explanation lies in the object.

    Source: Zhang et al. (2018), without their tolerance of some pixels: ``1[argmax v in m]`` with v = ``saliency`` and
    m = ``object_masks``. Ties go to the first pixel in row-major order. Chance level: the object's share of the image.

    Args:
        saliency: ``(B, k, H, W)`` float, signed.
        object_masks: ``(B, H, W)`` bool.

    Returns:
        ``(B, k)`` float64, 1 or 0, higher is better; NaN for a map that is flat, nowhere positive or not finite, and
        for an object that is empty or fills the image.

    Example:
        >>> saliency = torch.tensor([[[[1.0, 3.0, 0.0], [1.0, 0.0, -5.0]]]])
        >>> pointing_game(saliency, torch.tensor([[[True, False, False], [True, False, False]]]))
        tensor([[0.]], dtype=torch.float64)
    """
    check_saliency(saliency, object_masks)
    peaks = peak_cells(saliency)
    images = torch.arange(saliency.shape[0], device=saliency.device)[:, None]
    hits = object_masks[images, peaks[..., 1], peaks[..., 0]].double()
    return hits.masked_fill(nothing_to_localise(saliency, object_masks), torch.nan)


def energy_pointing_game(saliency: Tensor, object_masks: Tensor) -> Tensor:
    """Share of the positive relevance of an explanation that lies in the object.

    Source: Wang et al. (2020): ``Σ max(v, 0) inside / Σ max(v, 0)`` with v = ``saliency``. Chance level: the object's
    share of the image. Arguments, shape of the result and where it is NaN as for :func:`pointing_game`.

    Example:
        >>> saliency = torch.tensor([[[[1.0, 3.0, 0.0], [1.0, 0.0, -5.0]]]])
        >>> energy_pointing_game(saliency, torch.tensor([[[True, False, False], [True, False, False]]]))
        tensor([[0.4000]], dtype=torch.float64)
    """
    check_saliency(saliency, object_masks)
    energy = saliency.double().clamp(min=0)
    inside = energy.masked_fill(~object_masks[:, None], 0).sum(dim=(-2, -1))
    outside = energy.masked_fill(object_masks[:, None], 0).sum(dim=(-2, -1))
    return (inside / (inside + outside)).masked_fill(nothing_to_localise(saliency, object_masks), torch.nan)


class PointingGame(ImageMean):
    """Share of explanations whose peak lies in the object (higher is better)."""

    unit = "fraction"
    higher_is_better = True

    def update(self, saliency: Tensor, object_masks: Tensor) -> None:
        self._accumulate(pointing_game(saliency.detach(), object_masks))


class EnergyPointingGame(ImageMean):
    """Mean share of positive relevance that lies in the object (higher is better)."""

    unit = "fraction"
    higher_is_better = True

    def update(self, saliency: Tensor, object_masks: Tensor) -> None:
        self._accumulate(energy_pointing_game(saliency.detach(), object_masks))


POINTING_GAME = MetricEntry(
    "localisation/pointing_game",
    PointingGame,
    Words(
        question="Does the strongest pixel lie on the object?",
        name="Pointing game",
        formula="share of maps whose peak lies on the object",
        source="[Z18]",
        misread="Chance is the object's share of the image. Without masks, the filled box is the object "
        "(`protocol.object`).",
    ),
    needs=("units", "object_mask|bounding_box"),  # any explainer will do: of units, or of the predicted class
    view="localisation",
)

ENERGY = MetricEntry(
    "localisation/energy",
    EnergyPointingGame,
    Words(
        question="How much of the relevance lies on the object?",
        name="Energy pointing game",
        formula="mean share of positive relevance on the object",
        source="[W20]",
        misread="Chance as above, the value of a uniform map.",
    ),
    needs=("units", "object_mask|bounding_box"),
    view="localisation",
)
