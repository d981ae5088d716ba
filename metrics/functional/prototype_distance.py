"""Kernels: distances in latent space of units and of the features they find, between classes and within one."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from metrics.functional.primitives.checks import check_choice, check_tensor
from metrics.functional.primitives.peaks import peak_cells
from metrics.functional.primitives.regions import all_finite

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
