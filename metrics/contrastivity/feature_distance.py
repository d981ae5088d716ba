"""Distances in latent space of the features that the units of the classes find (AFD)."""

from __future__ import annotations

from typing import Any, get_args

import torch
from torch import Tensor

from protometry.metrics.base import ItemMean
from protometry.metrics.contrastivity.cosine_distance import Mode, directions, distance_between, distance_within
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.facts import Facts
from protometry.metrics.primitives.checks import check_at_least, check_choice, check_labels, check_tensor
from protometry.metrics.primitives.peaks import peak_cells
from protometry.metrics.primitives.regions import all_finite


def nearest_features(latent: Tensor, maps: Tensor) -> Tensor:
    """The latent vector at the peak of each map.

    Source: Schlinge et al. (2025), section 5.3. Ties go to the first cell in row-major order, as does a flat map. If
    the grids differ, the latent cell that holds the centre of the peak cell.

    Args:
        latent: ``(B, D, h, w)`` float.
        maps: ``(B, k, h', w')`` float.

    Returns:
        ``(B, k, D)`` of the dtype of ``latent``; NaN where a map is not finite.
    """
    check_tensor("latent", latent, ("B", "D", "h", "w"), "float")
    check_tensor("maps", maps, (latent.shape[0], "k", "h'", "w'"), "float")
    (height, width), (map_height, map_width) = latent.shape[2:], maps.shape[2:]
    peaks = peak_cells(maps)
    columns = (2 * peaks[..., 0] + 1) * width // (2 * map_width)
    rows = (2 * peaks[..., 1] + 1) * height // (2 * map_height)
    images = torch.arange(latent.shape[0], device=latent.device)[:, None]
    features = latent[images, :, rows, columns]
    return features.masked_fill(~all_finite(maps)[:, :, None], torch.nan)


def feature_direction_sums(features: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Sums of directions ``(K, D)`` float64 and counts ``(K,)`` int64 of the classes."""
    check_tensor("features", features, ("M", "D"), "float")
    check_labels(labels, len(features), num_classes)
    unit_vectors, has_direction = directions(features)
    sums = unit_vectors.new_zeros(num_classes, features.shape[1]).index_add_(0, labels, unit_vectors)
    counts = labels.new_zeros(num_classes).index_add_(0, labels, has_direction.long())
    return sums, counts


def feature_distance_of_sums(sums: Tensor, counts: Tensor, mode: Mode) -> Tensor:
    """:func:`average_feature_distance` from what :func:`feature_direction_sums` returns."""
    if mode == "intra":
        return distance_within(sums, counts)
    return distance_between(sums, counts, sums.sum(dim=0) - sums, counts.sum() - counts)


def average_feature_distance(features: Tensor, labels: Tensor, num_classes: int, mode: Mode = "inter") -> Tensor:
    """Average cosine distance of the features of each class to features of other classes, or to each other.

    Source: Schlinge et al. (2025), section 5.3: as :func:`protometry.metrics.functional.average_prototype_distance`, on
    the multiset of features instead of the set of prototypes. Features that are zero or not finite have no direction
    and are left out.

    Args:
        features: ``(M, D)`` float, see :func:`nearest_features`.
        labels: ``(M,)`` int64 in ``[0, num_classes)``, class of the image of each feature.
        num_classes: K.
        mode: ``"inter"`` or ``"intra"``.

    Returns:
        ``(K,)`` float64 cosine distances in [0, 2], higher is better; NaN for a class without features, for intra with
        a single one, and for inter if no other class has any.

    Example:
        >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
        >>> average_feature_distance(features, torch.tensor([0, 0, 1, 1]), num_classes=2)
        tensor([0.7000, 0.7000], dtype=torch.float64)
    """
    check_choice("mode", mode, get_args(Mode))
    return feature_distance_of_sums(*feature_direction_sums(features, labels, num_classes), mode)


_UNDEFINED = {"inter": "fewer than two classes have features", "intra": "no class has two features"}


class AverageFeatureDistance(ItemMean):
    """Mean over classes of the cosine distance of their features to others or to each other (AFD, higher is better).

    Of the latent vectors at the peaks of the top-k maps of the images of a class.

    Example:
        >>> metric = AverageFeatureDistance(num_classes=2, num_channels=2)
        >>> latent = torch.tensor([[[[1.0, 0.0]], [[0.0, 1.0]]]])  # two cells: (1, 0) and (0, 1)
        >>> metric.update(latent, torch.tensor([[[[9.0, 0.0]]]]), torch.tensor([0]))
        >>> metric.update(latent, torch.tensor([[[[0.0, 9.0]]]]), torch.tensor([1]))
        >>> metric.compute()
        tensor(1., dtype=torch.float64)
    """

    unit = "cosine distance"
    value_range = (0.0, 2.0)
    averaged_over = "class"
    higher_is_better = True
    direction_sums: Tensor
    counts: Tensor

    def __init__(self, num_classes: int, num_channels: int, mode: Mode = "inter", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_choice("mode", mode, get_args(Mode))
        check_at_least("num_classes", num_classes, 1)
        check_at_least("num_channels", num_channels, 1)
        self.mode: Mode = mode
        self.undefined = _UNDEFINED[mode]
        self.add_state(
            "direction_sums", torch.zeros(num_classes, num_channels, dtype=torch.float64), dist_reduce_fx="sum"
        )
        self.add_state("counts", torch.zeros(num_classes, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, latent: Tensor, maps: Tensor, labels: Tensor) -> None:
        num_classes, num_channels = self.direction_sums.shape
        check_tensor("latent", latent, ("B", num_channels, "h", "w"), "float")
        check_labels(labels, len(latent), num_classes)
        features = nearest_features(latent.detach(), maps)
        sums, counts = feature_direction_sums(
            features.flatten(0, 1), labels.repeat_interleave(features.shape[1]), num_classes
        )
        self.direction_sums = self.direction_sums + sums
        self.counts = self.counts + counts
        self.dropped = self.dropped + (features.shape[:2].numel() - counts.sum())

    def values(self) -> Tensor:
        return feature_distance_of_sums(self.direction_sums, self.counts, self.mode)


def _of_latent(facts: Facts, mode: Mode) -> AverageFeatureDistance:
    assert facts.channels is not None
    return AverageFeatureDistance(facts.num_classes, facts.channels, mode)


FEATURE_DISTANCE_INTRA = MetricEntry(
    "contrastivity/afd_intra",
    AverageFeatureDistance,
    Words(
        question="How different is what the units of one class find?",
        name="Average feature distance within classes",
        formula="mean cosine distance of the features at the peaks of the top-5 units on images of a class",
        source="[S25] 5.3, [W23]",
        misread="High if the features of a class vary, which is bad for its prototypes; yet higher counts as better.",
    ),
    lambda facts: _of_latent(facts, "intra"),
    needs=("latent", "single_label"),
)

FEATURE_DISTANCE_INTER = MetricEntry(
    "contrastivity/afd_inter",
    AverageFeatureDistance,
    Words(
        question="How different is what the units of different classes find?",
        name="Average feature distance between classes",
        formula="the same to the features of other classes",
        source="[S25] 5.3, [W23]",
        misread="Like APD, a property of the latent space.",
    ),
    lambda facts: _of_latent(facts, "inter"),
    needs=("latent", "single_label"),
)
