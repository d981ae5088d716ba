"""Distances in latent space of the units of the classes and of the features they find."""

from __future__ import annotations

from typing import Any, get_args

import torch
from torch import Tensor

from metrics.base import AveragedOver, ItemMean
from metrics.functional.primitives.checks import check_at_least, check_choice, check_ids, check_tensor
from metrics.functional.prototype_distance import (
    Mode,
    average_prototype_distance,
    feature_direction_sums,
    feature_distance_of_sums,
    nearest_features,
)


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
        >>> metric.name, metric.compute()
        ('apd_intra', tensor(0.6000, dtype=torch.float64))
    """

    name = "apd_inter"
    unit = "cosine distance"
    value_range = (0.0, 2.0)
    reads = ("unit_ids", "labels")
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
        self.name = f"apd_{mode}"
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
        >>> metric.name, metric.compute()
        ('afd_inter', tensor(1., dtype=torch.float64))
    """

    name = "afd_inter"
    unit = "cosine distance"
    value_range = (0.0, 2.0)
    reads = ("latent", "maps", "labels")
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
        self.name = f"afd_{mode}"
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
