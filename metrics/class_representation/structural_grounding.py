"""Whether classes that look alike are made of similar units ("CUB similarity")."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from protometry.metrics.base import ModelValue
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.facts import Facts
from protometry.metrics.primitives.checks import check_at_least, check_range, check_tensor

_RANKED_DIGITS = 12  # two computations of one cosine differ in later ones


def class_similarity(rows: Tensor) -> Tensor:
    """Cosine similarities of classes.

    Source: Norrenbrock et al. (2025), the matrices S_gt and S_model.

    Args:
        rows: ``(K, A)`` float, what is known of each class: frequencies of attributes, or head weights.

    Returns:
        ``(K, K)`` float64 in [-1, 1] up to rounding; NaN for a class of zeros, or with a value that is not finite.

    Example:
        >>> class_similarity(torch.tensor([[1.0, 0.0], [4.0, 3.0]]))[0, 1]
        tensor(0.8000, dtype=torch.float64)
    """
    rows = rows.double()
    directions: Tensor = rows / rows.norm(dim=1, keepdim=True)
    return directions @ directions.T


def similar_class_pairs(class_attributes: Tensor, pairs: int = 25) -> Tensor:
    """The pairs of classes with the most similar attributes.

    Source: Norrenbrock et al. (2025), the set C_Sim. Cosines are compared to 12 digits; ties go to the pair that comes
    first in row-major order. Pairs with a class without attributes come last.

    Args:
        class_attributes: ``(K, A)`` float >= 0, frequency of each attribute in each class.
        pairs: the most pairs to return, at least 1.

    Returns:
        ``(P, 2)`` int64, most similar first; P = min(pairs, K (K − 1) / 2), and the first class of a pair is the lower.

    Example:
        >>> similar_class_pairs(torch.tensor([[1.0, 0.0], [4.0, 3.0], [0.0, 1.0]]), pairs=2).tolist()
        [[0, 1], [1, 2]]
    """
    every, cosines = _pair_cosines(class_attributes, pairs)
    return every.T[cosines.argsort(descending=True, stable=True)[:pairs]]


def _pair_cosines(class_attributes: Tensor, pairs: int) -> tuple[Tensor, Tensor]:
    """All pairs of classes ``(2, P)``, and the cosines by which they rank, minus infinity if undefined."""
    check_tensor("class_attributes", class_attributes, ("K", "A"), "float")
    check_range("class_attributes", class_attributes, 0, math.inf)
    check_at_least("pairs", pairs, 1)
    classes = len(class_attributes)
    every = torch.triu_indices(classes, classes, offset=1, device=class_attributes.device)
    cosines = class_similarity(class_attributes)[every[0], every[1]].round(decimals=_RANKED_DIGITS)
    return every, cosines.nan_to_num(-torch.inf)


def _grounding_sums(weight: Tensor, class_attributes: Tensor, pairs: int) -> tuple[Tensor, Tensor]:
    """Structural grounding, and the number of pairs left out of it."""
    check_tensor("weight", weight, (len(class_attributes), "U"), "float")
    (first, second), cosines = _pair_cosines(class_attributes, pairs)
    count = min(pairs, len(cosines))
    least = cosines.topk(count).values[-1:]
    above, tied = cosines > least, cosines == least
    chance = above + tied * (count - above.sum()) / tied.sum()  # of a pair to be among them
    model, truth = class_similarity(weight)[first, second], class_similarity(class_attributes)[first, second]
    undefined = ~(model.isfinite() & truth.isfinite())
    kept = chance.masked_fill(undefined, 0)
    value = (kept * model.nan_to_num()).sum() / (kept * truth.nan_to_num()).sum()
    return value, (undefined & (chance > 0)).sum()


def structural_grounding(weight: Tensor, class_attributes: Tensor, pairs: int = 25) -> Tensor:
    """Whether classes that look alike have similar weights ("CUB similarity").

    Source: Norrenbrock et al. (2025): ``Σ S_model / Σ S_gt`` over the ``pairs`` pairs of classes with the largest S_gt,
    the cosine similarity of the rows of ``class_attributes``; S_model is the same for the rows of ``weight``, signs
    kept. Pairs that tie at the last place, to 12 digits, each count with their probability under a random choice, so
    that the order of classes changes nothing; the paper does not specify ties. A pair in which a class has no
    attributes or no weights is left out of both sums.

    Args:
        weight: ``(K, U)`` float head weights without bias.
        class_attributes: ``(K, A)`` float >= 0, frequency of each attribute in each class.
        pairs: number of pairs; all if there are fewer.

    Returns:
        float64 scalar, about [-1, 1] (above 1 where the model's classes are more alike than the real ones), higher is
        better; NaN without any defined pair.

    Example:
        >>> attributes = torch.tensor([[1.0, 0.0], [4.0, 3.0], [0.0, 1.0]])
        >>> structural_grounding(torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 0.0, 1.0]]), attributes, pairs=2)
        tensor(0.8622, dtype=torch.float64)
    """
    return _grounding_sums(weight, class_attributes, pairs)[0]


class StructuralGrounding(ModelValue):
    """Whether classes that look alike have similar weights (higher is better).

    Pairs left out of both sums are counted in ``skipped``.
    """

    unit = "ratio"
    higher_is_better = True
    class_attributes: Tensor
    pairs_left_out: Tensor

    def __init__(self, class_attributes: Tensor, pairs: int = 25, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pairs = pairs
        self.register_buffer("class_attributes", class_attributes, persistent=False)
        self.add_state("pairs_left_out", torch.zeros((), dtype=torch.int64), dist_reduce_fx="max")

    def update(self, weight: Tensor, active: Tensor | None = None) -> None:
        check_tensor("weight", weight, ("K", "U"), "float")
        if active is not None:
            check_tensor("active", active, (weight.shape[1],), "bool")
        used = weight if active is None else weight.masked_fill(~active, 0)
        value, self.pairs_left_out = _grounding_sums(used, self.class_attributes, self.pairs)
        self._store(value)

    def _estimate(self) -> tuple[Tensor, Tensor, Tensor]:
        value, n, _ = super()._estimate()
        return value, n, self.pairs_left_out


def _build(facts: Facts) -> StructuralGrounding:
    return StructuralGrounding(facts.tables.class_attributes)


STRUCTURAL_GROUNDING = MetricEntry(
    "class_representation/structural_grounding",
    StructuralGrounding,
    Words(
        question="Are classes with similar attributes made of similar units?",
        name="Structural grounding",
        formula="Σ cos(w_c, w_c′) / Σ cos(a_c, a_c′) over the 25 pairs of classes with the most similar attributes a",
        source="[N25]",
        misread="A model with equal weights for all classes exceeds 1; one feature per class gives 0 by construction.",
    ),
    _build,
    needs=("weight", "class_attributes", "single_label"),
)
