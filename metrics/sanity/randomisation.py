"""Randomisation: how much of a map is left once the backbone has random weights."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_tensor
from protometry.metrics.primitives.chunks import image_chunks
from protometry.metrics.primitives.regions import is_flat, value_range
from protometry.metrics.sanity.against_control import AgainstControl

STAGES = (1, 3)  # numbers of last stages that are drawn again, where it is not the whole backbone
_WINDOW, _LUMINANCE, _CONTRAST = 7, 0.01**2, 0.03**2  # of structural similarity, for values from 0 to 1


def _centred_ranks(values: Tensor) -> Tensor:
    """Twice the ranks of ``(..., n)`` values among themselves minus their mean; equal values share their mean rank."""
    ordered = values.sort(dim=-1).values
    sums = torch.searchsorted(ordered, values) + torch.searchsorted(ordered, values, right=True)
    return (sums - values.shape[-1]).double()


def _check_pair(maps: Tensor, other_maps: Tensor) -> Tensor:
    """``(B, k)`` bool, whether either map of a pair is flat or not finite."""
    check_tensor("maps", maps, ("B", "k", "H", "W"), "float")
    check_tensor("other_maps", other_maps, tuple(maps.shape), "float")
    return is_flat(*value_range(maps)) | is_flat(*value_range(other_maps))


def map_rank_correlation(maps: Tensor, other_maps: Tensor) -> Tensor:
    """Spearman's rank correlation of two maps.

    Source: Adebayo et al. (2018), section 4: the correlation of the ranks of all pixels, with the mean rank for equal
    ones. Signed maps are compared with their signs.

    Args:
        maps: ``(B, k, H, W)`` float.
        other_maps: the same.

    Returns:
        ``(B, k)`` float64 in [-1, 1]; NaN where a map is flat or not finite.

    Example:
        >>> one, other = torch.tensor([[[[1.0, 2.0, 3.0]]]]), torch.tensor([[[[5.0, 5.0, 9.0]]]])
        >>> map_rank_correlation(one, other)  # of 1, 2, 3 and 1.5, 1.5, 3: 1.5 / sqrt(2 * 1.5)
        tensor([[0.8660]], dtype=torch.float64)
    """
    undefined = _check_pair(maps, other_maps)
    correlations = []
    for pair in image_chunks(maps, other_maps):
        one, other = (_centred_ranks(part.double().flatten(2)) for part in pair)
        squares = one.square().sum(dim=2) * other.square().sum(dim=2)
        correlations.append((one * other).sum(dim=2) / squares.sqrt())
    return torch.cat(correlations).clamp(-1, 1).masked_fill(undefined, torch.nan)


def _local_mean(values: Tensor) -> Tensor:
    return F.avg_pool2d(F.avg_pool2d(values, (_WINDOW, 1), 1), (1, _WINDOW), 1)


def map_structural_similarity(maps: Tensor, other_maps: Tensor) -> Tensor:
    """Structural similarity of two maps, each scaled to its own range.

    Source: Wang et al. (2004), equation 13, as used by Adebayo et al. (2018), section 4: the mean over all windows of
    7×7 pixels of ``(2 m m' + c) (2 v_mm' + d) / ((m² + m'² + c) (v + v' + d))`` with means m, variances v, covariance
    v_mm', c = 0.01² and d = 0.03². Deviation: windows have equal weights instead of a Gaussian's.

    Args:
        maps: ``(B, k, H, W)`` float, at least 7×7.
        other_maps: the same.

    Returns:
        ``(B, k)`` float64 in [-1, 1]; NaN where a map is flat or not finite.

    Example:
        >>> maps = torch.arange(64.0).view(1, 1, 8, 8)
        >>> map_structural_similarity(maps, 2 * maps + 1)
        tensor([[1.]], dtype=torch.float64)
    """
    undefined = _check_pair(maps, other_maps)
    if min(maps.shape[2:]) < _WINDOW:
        raise ValueError(
            f"Expected argument `maps` to be at least {_WINDOW} pixels high and wide, but got {tuple(maps.shape[2:])}."
        )
    similarities = []
    for pair in image_chunks(maps, other_maps):
        scaled = []
        for part in pair:
            low, high = (end[:, :, None, None] for end in value_range(part))
            scaled.append((part.double() - low) / (high - low))
        one, other = scaled
        mean, other_mean = _local_mean(one), _local_mean(other)
        product, squares = mean * other_mean, mean.square() + other_mean.square()
        covariance = _local_mean(one * other) - product
        variances = _local_mean(one.square() + other.square()) - squares
        similar = (2 * product + _LUMINANCE) * (2 * covariance + _CONTRAST)
        similarities.append((similar / ((squares + _LUMINANCE) * (variances + _CONTRAST))).mean(dim=(2, 3)))
    return torch.cat(similarities).clamp(-1, 1).masked_fill(undefined, torch.nan)


class RandomisedRankCorrelation(AgainstControl):
    """Mean rank correlation of maps with those of the same units with a randomised backbone (lower is better)."""

    unit = "correlation"
    value_range = (-1.0, 1.0)
    higher_is_better = False
    kernel = staticmethod(map_rank_correlation)

    def update(self, saliency: Tensor, randomised_saliency: Tensor, shifted_saliency: Tensor) -> None:
        maps, others = saliency.detach(), (randomised_saliency.detach(), shifted_saliency.detach())
        self._compare(*(self.kernel(maps, other) for other in others))


class RandomisedSimilarity(RandomisedRankCorrelation):
    """Mean structural similarity of maps with those of a randomised backbone (lower is better)."""

    unit = "similarity"
    value_range = (-1.0, 1.0)
    kernel = staticmethod(map_structural_similarity)


RANK_CORRELATION = MetricEntry(
    "sanity/randomised_rank_correlation",
    RandomisedRankCorrelation,
    Words(
        question="Does a map stay the same although the backbone has learnt nothing?",
        name="Randomisation, rank correlation",
        formula="mean Spearman correlation of the pixels of a map and of the map of the same unit once all parameters "
        "of the backbone are drawn again",
        source="[A18] 4",
        misread="Far below the control is no better than at it: the maps should be unrelated, not opposite. Edges and "
        "the frame of the image show in random networks, too.",
        finding="Before and after its backbone gets random weights, the maps of a unit correlate by {value}.",
    ),
    needs=("units", "explainer", "backbone"),
    view="randomised",
)

SIMILARITY = MetricEntry(
    "sanity/randomised_ssim",
    RandomisedSimilarity,
    Words(
        question="Does a map look the same although the backbone has learnt nothing?",
        name="Randomisation, structural similarity",
        formula="the same with the mean structural similarity over windows of 7×7 pixels, maps scaled to [0, 1]",
        source="[A18] 4, [W04] 13",
        misread="Any two smooth maps are alike in most windows: compare with `shifted`, not with 0.",
    ),
    needs=("units", "explainer", "backbone"),
    view="randomised",
)


def _of_last_stages(entry: MetricEntry, stages: int) -> MetricEntry:
    """The same, with only the last stages drawn again (Adebayo et al. 2018, cascading randomisation)."""
    last = "last stage" if stages == 1 else f"last {stages} stages"
    formula = f"the same with only the {last} of the backbone drawn again"
    words = replace(entry.words, name=f"{entry.words.name}, {last}", formula=formula, finding="")
    needs = ("units", "explainer", "backbone", f"stages@{stages}")
    return replace(entry, key=f"{entry.key}@{stages}", words=words, needs=needs, view=f"randomised@{stages}", full=True)


LAST_STAGES = tuple(_of_last_stages(entry, stages) for entry in (RANK_CORRELATION, SIMILARITY) for stages in STAGES)
