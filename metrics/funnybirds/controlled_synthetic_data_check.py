"""Whether the important parts contain a set of parts that suffices to identify the class."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from protometry.metrics.entry import Words
from protometry.metrics.funnybirds.threshold_mean import ThresholdMean
from protometry.metrics.primitives.checks import check_labels, check_tensor


def minimal_sufficient_sets(class_parts: Tensor) -> Tensor:
    """The smallest sets of parts that distinguish a class from all others.

    Source: Hesse et al. (2023), controlled synthetic data check. A set S is sufficient for class c if no other class
    has the variants of c in all parts of S; it is minimal if no proper subset is sufficient. A class whose twin has all
    of its parts has no such set.

    Args:
        class_parts: ``(K, N)`` int64, the variant of each part in each class.

    Returns:
        ``(K, Q, N)`` bool, by size and then by their first parts; padded with empty sets, at least one set a class.

    Example:
        >>> minimal_sufficient_sets(torch.tensor([[0, 0, 0], [0, 1, 1], [1, 0, 1]]))[0].int().tolist()
        [[0, 0, 1], [1, 1, 0]]
    """
    check_tensor("class_parts", class_parts, ("K", "N"), "int64")
    classes, parts = class_parts.shape
    chosen = [one for size in range(parts + 1) for one in combinations(range(parts), size)]
    subsets = torch.tensor([[part in one for part in range(parts)] for one in chosen], device=class_parts.device)
    differs = (class_parts[:, None] != class_parts).float() @ subsets.T.float() > 0  # (K, K, subsets)
    itself = torch.eye(classes, dtype=torch.bool, device=class_parts.device)[:, :, None]
    sufficient = (differs | itself).all(dim=1)
    # a superset of a sufficient set is sufficient: it is enough to look at the sets with one part less
    smaller = (subsets[:, None] <= subsets).all(dim=2) & (subsets[:, None].sum(2) + 1 == subsets.sum(1))
    minimal = sufficient & (sufficient.float() @ smaller.float() == 0)
    most = max(1, int(minimal.sum(dim=1).max())) if classes else 1
    is_minimal, order = minimal.sort(dim=1, descending=True, stable=True)
    return subsets[order[:, :most]] & is_minimal[:, :most, None]


def controlled_synthetic_data_check(
    label_parts: Tensor, labels: Tensor, predictions: Tensor, sufficient_sets: Tensor
) -> Tensor:
    """Whether the important parts contain a set of parts that suffices to identify the class (CSDC).

    Source: Hesse et al. (2023): ``max_S |S ∩ P_t| / |S|`` over the minimal sufficient sets S of the class.

    Args:
        label_parts: ``(B, T, N)`` bool, important parts P_t of the explanation of the label.
        labels: ``(B,)`` int64 in ``[0, K)``.
        predictions: ``(B,)`` int64.
        sufficient_sets: ``(K, Q, N)`` bool, see :func:`minimal_sufficient_sets`.

    Returns:
        ``(B, T)`` float64 in [0, 1], higher is better; NaN where the prediction is wrong and for a class without any
        sufficient set.
    """
    check_tensor("label_parts", label_parts, ("B", "T", "N"), "bool")
    images, _, parts = label_parts.shape
    check_labels(labels, images, len(sufficient_sets))
    check_tensor("predictions", predictions, (images,), "int64")
    check_tensor("sufficient_sets", sufficient_sets, ("K", "Q", parts), "bool")
    sets = sufficient_sets[labels].double()
    sizes = sets.sum(dim=2)[:, None]
    shares = (label_parts.double() @ sets.transpose(1, 2) / sizes).masked_fill(sizes == 0, -torch.inf)
    best = shares.amax(dim=2)
    return best.masked_fill(best.isinf() | (labels != predictions)[:, None], torch.nan)


class ControlledSyntheticDataCheck(ThresholdMean):
    """Mean share of a sufficient set of parts that is called important (CSDC, higher is better).

    Example:
        >>> sets = torch.tensor([[[False, False, True], [True, True, False]]])
        >>> metric, one = ControlledSyntheticDataCheck(sets, num_thresholds=2), torch.tensor([0])
        >>> metric.update(torch.tensor([[[True, True, False], [True, False, False]]]), one, one, one)
        >>> metric.compute()
        tensor([1.0000, 0.5000], dtype=torch.float64)
    """

    sufficient_sets: Tensor

    def __init__(self, sufficient_sets: Tensor, num_thresholds: int = 80, **kwargs: Any) -> None:
        super().__init__(num_thresholds, **kwargs)
        self.register_buffer("sufficient_sets", sufficient_sets, persistent=False)

    def update(self, label_parts: Tensor, labels: Tensor, predictions: Tensor, sample_ids: Tensor) -> None:
        values = controlled_synthetic_data_check(label_parts, labels, predictions, self.sufficient_sets)
        self._accumulate(values, sample_ids)


CSDC_WORDS = Words(
    question="Are the parts that suffice for the class called important?",
    name="Controlled synthetic data check",
    formula="mean of max_S #(S ∩ P(y)) / #S over the minimal sufficient sets S of the class",
    source="[H23a]",
    misread="Correctly classified images only. Declaring everything important scores 1.",
)
