"""Distances in latent space of the units of the classes (APD)."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from protometry.metrics.base import ItemMean
from protometry.metrics.contrastivity.cosine_distance import Mode, directions, distance_between, distance_within
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.facts import Facts
from protometry.metrics.primitives.checks import check_at_least, check_choice, check_ids, check_labels, check_tensor


def average_prototype_distance(
    vectors: Tensor, membership: Tensor, mode: Mode = "inter", active: Tensor | None = None
) -> Tensor:
    """Average cosine distance of the units of each class to all other units, or to each other.

    Source: Schlinge et al. (2025), equations 13 and 14, after Wang et al.: for class k the mean of ``1 - p·q / (‖p‖
    ‖q‖)`` over p in P_k and q in O_k (inter), or over pairs p, q in P_k (intra). P_k is the set of units of class k and
    O_k the set of all other active units, both without units whose vector is zero; a unit shared by classes is in each
    of their P_k and in none of their O_k.

    Args:
        vectors: ``(U, D)`` float.
        membership: ``(K, U)`` bool or int64, above 0 where the unit was among the top k of an image of the class.
        mode: ``"inter"`` or ``"intra"``.
        active: ``(U,)`` bool; None for all.

    Returns:
        ``(K,)`` float64 cosine distances in [0, 2], higher is better; NaN for a class without units, for intra with a
        single one, for inter if no unit is left outside, and where a vector that takes part is not finite.
    """
    check_choice("mode", mode, get_args(Mode))
    check_tensor("vectors", vectors, ("U", "D"), "float")
    kind: Literal["bool", "int64"] = "bool" if membership.dtype == torch.bool else "int64"
    check_tensor("membership", membership, ("K", vectors.shape[0]), kind)
    eligible = torch.ones(vectors.shape[0], dtype=torch.bool, device=vectors.device)
    if active is not None:
        check_tensor("active", active, (vectors.shape[0],), "bool")
        eligible = active
    unit_vectors, has_direction = directions(vectors)
    broken = eligible & ~vectors.isfinite().all(dim=1)
    eligible = eligible & has_direction
    members, others = (membership > 0) & eligible, (membership <= 0) & eligible
    own_sum, own_count = members.double() @ unit_vectors, members.sum(dim=1)
    if mode == "intra":
        undefined = ((membership > 0) & broken).any(dim=1)
        return distance_within(own_sum, own_count).masked_fill(undefined, torch.nan)
    distance = distance_between(own_sum, own_count, others.double() @ unit_vectors, others.sum(dim=1))
    return distance.masked_fill(broken.any(), torch.nan)


_UNDEFINED = {
    "inter": "each class has all units among the top units of its images, which leaves none to compare them with",
    "intra": "no class has two units among the top units of its images",
}


class AveragePrototypeDistance(ItemMean):
    """Mean over classes of the cosine distance of their units to all others or to each other (APD, higher is better).

    The units of a class are those that were among the top k of any of its images.

    Example:
        >>> vectors = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.6, 0.8]])
        >>> metric = AveragePrototypeDistance(vectors, num_classes=3, mode="intra")
        >>> metric.update(torch.tensor([[0, 1], [1, 3]]), torch.tensor([0, 1]))  # distances 1 and 0.2, class 2 absent
        >>> metric.compute()
        tensor(0.6000, dtype=torch.float64)
    """

    unit = "cosine distance"
    value_range = (0.0, 2.0)
    averaged_over = "class"
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
        self.undefined = _UNDEFINED[mode]
        self.register_buffer("vectors", vectors.detach(), persistent=False)
        self.register_buffer("active", active, persistent=False)
        # uint8, since NCCL and atomic maxima of CUDA know no bool
        self.add_state(
            "membership", torch.zeros(num_classes, vectors.shape[0], dtype=torch.uint8), dist_reduce_fx="max"
        )

    def update(self, unit_ids: Tensor, labels: Tensor) -> None:
        check_ids("unit_ids", unit_ids, ("B", "k"), self.membership.shape[1])
        check_labels(labels, len(unit_ids), len(self.membership))
        filled = unit_ids >= 0
        cells = labels[:, None] * self.membership.shape[1] + unit_ids.clamp(min=0)
        with torch.inference_mode():  # in place, wherever the state was made: it has K times U entries
            self.membership.view(-1).scatter_reduce_(0, cells.flatten(), filled.flatten().byte(), "amax")
        self.dropped = self.dropped + (~filled).sum()

    def values(self) -> Tensor:
        return average_prototype_distance(self.vectors, self.membership.bool(), self.mode, self.active)


def _of_model(facts: Facts, mode: Mode) -> AveragePrototypeDistance:
    return AveragePrototypeDistance(facts.units.vectors, facts.num_classes, mode, facts.active)


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
        misread="Small for any model whose features share a direction, for instance after a sigmoid.",
    ),
    lambda facts: _of_model(facts, "inter"),
    needs=("vectors", "single_label"),
)
