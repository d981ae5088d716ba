"""Distances in latent space of the units of the classes and of the features they find."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from metrics.base import AveragedOver, ItemMean
from metrics.entry import MetricEntry, Words
from metrics.facts import Facts
from metrics.primitives.checks import check_at_least, check_choice, check_ids, check_tensor
from metrics.primitives.peaks import peak_cells
from metrics.primitives.regions import all_finite

Mode = Literal["inter", "intra"]


def _directions(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Rows scaled to norm 1 in float64, and which of them have a direction; the others are 0."""
    largest = vectors.abs().amax(dim=1, keepdim=True).double()  # scaled first, so that no square underflows
    has_direction = (largest > 0) & largest.isfinite()
    scaled = (vectors / largest).masked_fill(~has_direction, 0)
    norms = scaled.norm(dim=1, keepdim=True).masked_fill(~has_direction, 1)
    return scaled / norms, has_direction.squeeze(1)


def _inter(own_sum: Tensor, own_count: Tensor, other_sum: Tensor, other_count: Tensor) -> Tensor:
    pairs = own_count.double() * other_count
    distance = 1 - (own_sum * other_sum).sum(dim=1) / pairs
    return distance.clamp(0, 2).masked_fill(pairs == 0, torch.nan)


def _intra(own_sum: Tensor, own_count: Tensor) -> Tensor:
    count = own_count.double()
    distance = 1 - (own_sum.square().sum(dim=1) - count) / (count * (count - 1))
    return distance.clamp(0, 2).masked_fill(count < 2, torch.nan)


def nearest_features(latent: Tensor, maps: Tensor) -> Tensor:
    """The latent vector at the peak of each map.

    Source: Schlinge et al. (2025), section 5.3. Ties go to the first cell in row-major order, as does a flat map. If
    the grids differ, the latent cell that holds the centre of the peak cell.

    Args:
        latent: ``(B, D, h, w)`` float.
        maps: ``(B, k, h', w')`` float.

    Returns:
        ``(B, k, D)`` of the dtype of ``latent``; NaN where a map is not finite.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> latent = torch.tensor([[[[1.0, 2.0]], [[3.0, 4.0]]]])  # two cells: (1, 3) and (2, 4)
        >>> nearest_features(latent, torch.tensor([[[[0.0, 9.0]], [[9.0, 0.0]]]]))
        tensor([[[2., 4.],
                 [1., 3.]]])
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


def average_prototype_distance(
    vectors: Tensor, membership: Tensor, mode: Mode = "inter", active: Tensor | None = None
) -> Tensor:
    """Average cosine distance of the units of each class to all other units, or to each other.

    Source: Schlinge et al. (2025), equations 13 and 14, after Wang et al. P_k is the set of units of class k and O_k
    that of all other active units, both without units whose vector is zero; a unit shared by classes is in each of
    their P_k and in none of their O_k. With û = vectors / ‖vectors‖, S_k = Σ û over P_k and R_k = Σ û over O_k:
    inter_k = ``1 - S_k·R_k / (|P_k| |O_k|)``, intra_k = ``1 - (‖S_k‖² - |P_k|) / (|P_k| (|P_k| - 1))``.

    Args:
        vectors: ``(U, D)`` float.
        membership: ``(K, U)`` bool or int64, above 0 where the unit was among the top k of an image of the class.
        mode: ``"inter"`` or ``"intra"``.
        active: ``(U,)`` bool; None for all.

    Returns:
        ``(K,)`` float64 cosine distances in [0, 2], higher is better; NaN for a class without units, for intra with a
        single one, for inter if no unit is left outside, and where a vector that takes part is not finite.

    Raises:
        ValueError: if a shape or dtype differs from the above or ``mode`` is unknown.

    Example:
        >>> vectors = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.6, 0.8]])
        >>> membership = torch.tensor([[1, 1, 0, 0], [0, 1, 0, 1]])
        >>> average_prototype_distance(vectors, membership)
        tensor([0.4000, 0.7000], dtype=torch.float64)
    """
    check_choice("mode", mode, get_args(Mode))
    check_tensor("vectors", vectors, ("U", "D"), "float")
    kind: Literal["bool", "int64"] = "bool" if membership.dtype == torch.bool else "int64"
    check_tensor("membership", membership, ("K", vectors.shape[0]), kind)
    eligible = torch.ones(vectors.shape[0], dtype=torch.bool, device=vectors.device)
    if active is not None:
        check_tensor("active", active, (vectors.shape[0],), "bool")
        eligible = active
    directions, has_direction = _directions(vectors)
    broken = eligible & ~vectors.isfinite().all(dim=1)
    eligible = eligible & has_direction
    members, others = (membership > 0) & eligible, (membership <= 0) & eligible
    own_sum, own_count = members.double() @ directions, members.sum(dim=1)
    if mode == "intra":
        undefined = ((membership > 0) & broken).any(dim=1)
        return _intra(own_sum, own_count).masked_fill(undefined, torch.nan)
    distance = _inter(own_sum, own_count, others.double() @ directions, others.sum(dim=1))
    return distance.masked_fill(broken.any(), torch.nan)


def feature_direction_sums(features: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Sums of directions ``(K, D)`` float64 and counts ``(K,)`` int64 of the classes."""
    check_tensor("features", features, ("M", "D"), "float")
    check_tensor("labels", labels, (features.shape[0],), "int64")
    directions, has_direction = _directions(features)
    sums = directions.new_zeros(num_classes, features.shape[1]).index_add_(0, labels, directions)
    counts = labels.new_zeros(num_classes).index_add_(0, labels, has_direction.long())
    return sums, counts


def feature_distance_of_sums(sums: Tensor, counts: Tensor, mode: Mode) -> Tensor:
    """:func:`average_feature_distance` from what :func:`feature_direction_sums` returns."""
    if mode == "intra":
        return _intra(sums, counts)
    return _inter(sums, counts, sums.sum(dim=0) - sums, counts.sum() - counts)


def average_feature_distance(features: Tensor, labels: Tensor, num_classes: int, mode: Mode = "inter") -> Tensor:
    """Average cosine distance of the features of each class to those of other classes, or to each other.

    Source: Schlinge et al. (2025), section 5.3: equations 13 and 14 on the multiset of features instead of the set of
    prototypes. Features that are zero or not finite have no direction and are left out.

    Args:
        features: ``(M, D)`` float, see :func:`nearest_features`.
        labels: ``(M,)`` int64 in ``[0, num_classes)``, class of the image of each feature.
        num_classes: K.
        mode: ``"inter"`` or ``"intra"``.

    Returns:
        ``(K,)`` float64 cosine distances in [0, 2], higher is better; NaN for a class without features, for intra with
        a single one, and for inter if no other class has any.

    Raises:
        ValueError: if a shape or dtype differs from the above or ``mode`` is unknown.

    Example:
        >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
        >>> average_feature_distance(features, torch.tensor([0, 0, 1, 1]), num_classes=2)
        tensor([0.7000, 0.7000], dtype=torch.float64)
    """
    check_choice("mode", mode, get_args(Mode))
    return feature_distance_of_sums(*feature_direction_sums(features, labels, num_classes), mode)


class AveragePrototypeDistance(ItemMean):
    """Mean over classes of the cosine distance of their units to all others or to each other (APD, higher is better).

    Source: Schlinge et al. (2025), equations 13 and 14, after Wang et al.: for class k the mean of ``1 - p·q / (‖p‖
    ‖q‖)`` over p in P_k and q outside it (``"inter"``), or over pairs p, q in P_k (``"intra"``). P_k is the set of rows
    of ``vectors`` that were among the top k of any image of the class; a unit shared by classes is in each of their
    sets. A class without such a pair is undefined; empty slots are left out and counted.

    Args:
        vectors: ``(U, D)`` float, the model's unit vectors.
        num_classes: K.
        mode: ``"inter"`` or ``"intra"``.
        active: ``(U,)`` bool; None for all.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        unit_ids: ``(B, k)`` int64, the top-k units, -1 for an empty slot.
        labels: ``(B,)`` int64 in ``[0, K)``.

    Raises:
        ValueError: if an argument differs from the above.

    Example:
        >>> vectors = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.6, 0.8]])
        >>> metric = AveragePrototypeDistance(vectors, num_classes=3, mode="intra")
        >>> metric.update(torch.tensor([[0, 1], [1, 3]]), torch.tensor([0, 1]))  # distances 1 and 0.2, class 2 absent
        >>> metric.compute()
        tensor(0.6000, dtype=torch.float64)
    """

    unit = "cosine distance"
    value_range = (0.0, 2.0)
    averaged_over: AveragedOver = "class"
    higher_is_better = True
    vectors: Tensor
    active: Tensor | None
    membership: Tensor

    def __init__(
        self, vectors: Tensor, num_classes: int, mode: Mode = "inter", active: Tensor | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        check_choice("mode", mode, get_args(Mode))
        check_at_least("num_classes", num_classes, 1)
        check_tensor("vectors", vectors, ("U", "D"), "float")
        if active is not None:
            check_tensor("active", active, (vectors.shape[0],), "bool")
        self.mode: Mode = mode
        self.register_buffer("vectors", vectors.detach(), persistent=False)
        self.register_buffer("active", active, persistent=False)
        # uint8, since NCCL and atomic maxima of CUDA know no bool
        self.add_state(
            "membership", torch.zeros(num_classes, vectors.shape[0], dtype=torch.uint8), dist_reduce_fx="max"
        )

    def update(self, unit_ids: Tensor, labels: Tensor) -> None:
        """Add a batch."""
        check_tensor("unit_ids", unit_ids, ("B", "k"), "int64")
        check_tensor("labels", labels, (unit_ids.shape[0],), "int64")
        check_ids("unit_ids", unit_ids, self.membership.shape[1])
        filled = unit_ids >= 0
        cells = labels[:, None] * self.membership.shape[1] + unit_ids.clamp(min=0)
        with torch.inference_mode():  # in place, wherever the state was made: it has K times U entries
            self.membership.view(-1).scatter_reduce_(0, cells.flatten(), filled.flatten().byte(), "amax")
        self.dropped = self.dropped + (~filled).sum()

    def values(self) -> Tensor:
        """``(K,)`` float64, NaN where undefined."""
        return average_prototype_distance(self.vectors, self.membership.bool(), self.mode, self.active)


class AverageFeatureDistance(ItemMean):
    """Mean over classes of the cosine distance of their features to others or to each other (AFD, higher is better).

    Source: Schlinge et al. (2025), section 5.3: equations 13 and 14, as in :class:`AveragePrototypeDistance`, on the
    multiset of latent vectors at the peaks of the top-k maps of the images of a class instead of the set of prototypes.
    A class without a pair of features is undefined; features that are zero or not finite are left out and counted.

    Args:
        num_classes: K.
        num_channels: D.
        mode: ``"inter"`` or ``"intra"``.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        latent: ``(B, D, h, w)`` float.
        maps: ``(B, k, h', w')`` float, maps of the top-k units; on another grid the nearest latent cell counts.
        labels: ``(B,)`` int64 in ``[0, K)``.

    Raises:
        ValueError: if an argument differs from the above.

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
    averaged_over: AveragedOver = "class"
    higher_is_better = True
    direction_sums: Tensor
    counts: Tensor

    def __init__(self, num_classes: int, num_channels: int, mode: Mode = "inter", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_choice("mode", mode, get_args(Mode))
        check_at_least("num_classes", num_classes, 1)
        check_at_least("num_channels", num_channels, 1)
        self.mode: Mode = mode
        self.add_state(
            "direction_sums", torch.zeros(num_classes, num_channels, dtype=torch.float64), dist_reduce_fx="sum"
        )
        self.add_state("counts", torch.zeros(num_classes, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, latent: Tensor, maps: Tensor, labels: Tensor) -> None:
        """Add a batch."""
        num_classes, num_channels = self.direction_sums.shape
        check_tensor("latent", latent, ("B", num_channels, "h", "w"), "float")
        check_tensor("labels", labels, (latent.shape[0],), "int64")
        features = nearest_features(latent.detach(), maps)
        sums, counts = feature_direction_sums(
            features.flatten(0, 1), labels.repeat_interleave(features.shape[1]), num_classes
        )
        self.direction_sums = self.direction_sums + sums
        self.counts = self.counts + counts
        self.dropped = self.dropped + (features.shape[:2].numel() - counts.sum())

    def values(self) -> Tensor:
        """``(K,)`` float64, NaN where undefined."""
        return feature_distance_of_sums(self.direction_sums, self.counts, self.mode)


def _of_model(facts: Facts, mode: Mode) -> AveragePrototypeDistance:
    assert facts.vectors is not None
    return AveragePrototypeDistance(facts.vectors, facts.num_classes, mode, facts.active)


PROTOTYPE_DISTANCE_INTRA = MetricEntry(
    "contrastivity/apd_intra",
    AveragePrototypeDistance,
    Words(
        question="How different are the prototypes of one class?",
        name="Average prototype distance within classes",
        formula="mean cosine distance of prototypes in the top 5 of images of a class",
        source="[S25] 14, [W23]",
        misread="Distances in latent space: two prototypes may differ there and show the same part.",
    ),
    lambda facts: _of_model(facts, "intra"),
    needs=("vectors", "single_label"),
)


PROTOTYPE_DISTANCE_INTER = MetricEntry(
    "contrastivity/apd_inter",
    AveragePrototypeDistance,
    Words(
        question="How different are the prototypes of different classes?",
        name="Average prototype distance between classes",
        formula="the same to all other prototypes",
        source="[S25] 13, [W23]",
        misread="Small for any model whose features share a direction (after a sigmoid, for instance).",
    ),
    lambda facts: _of_model(facts, "inter"),
    needs=("vectors", "single_label"),
)


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
        misread="High if a class's features vary, which is bad for its prototypes, although higher counts as better.",
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
        misread="As APD, a matter of the latent space.",
    ),
    lambda facts: _of_latent(facts, "inter"),
    needs=("latent", "single_label"),
)
