"""Global importance of concepts: whether the classes that a model connects with a concept have it."""

from __future__ import annotations

import math
from functools import partial
from itertools import product
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from protometry.metrics.base import AveragedOver, ItemMean
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.facts import Facts
from protometry.metrics.primitives.checks import check_choice, check_labels, check_range, check_tensor

Kind = Literal[1, 2, 3]
Axis = Literal["concept", "class"]

_CONSTANT = 1e-12  # share of its norm that rounding leaves of a constant vector once its mean is taken off


def concept_global_importance(
    weight: Tensor,
    annotation: Tensor,
    mean_scores: Tensor | None = None,
    kind: Kind = 1,
    axis: Axis = "concept",
    centered: bool = False,
) -> Tensor:
    """Cosine between what concepts mean to the classes of a model and what annotators say of the classes.

    Source: Aysel et al. (2025), equations 3 to 8, transposed: with θ = ``weight``, U* = ``mean_scores`` and V =
    ``annotation``, the cosine of V with θ (kind 1), U* (kind 2) or θ ∘ U* (kind 3), along the classes for every concept
    (columns) or along the concepts for every class (rows). A class without mean scores is left out of the concepts of
    kinds 2 and 3, and is undefined itself.

    Args:
        weight: ``(K, L)`` float head weights.
        annotation: ``(K, L)`` float >= 0, strength of every concept in every class; NaN where unknown: left out.
        mean_scores: ``(K, L)`` float mean concept values of the images of a class that are classified correctly, a row
            of NaN for a class without any; kinds 2 and 3 need it.
        kind: 1, 2 or 3.
        axis: ``"concept"`` for one value per concept, ``"class"`` for one per class.
        centered: take the means off first, which gives Pearson's correlation: V >= 0 makes the sign of the cosine
            follow the mean of the other vector.

    Returns:
        ``(L,)`` or ``(K,)`` float64 in [-1, 1], higher is better; NaN where a vector is zero (or constant, if centered)
        or where fewer than two classes are left.
    """
    _check(weight, annotation, kind, axis)
    ours, theirs = weight.double(), annotation.double()
    if kind > 1:
        if mean_scores is None:
            raise ValueError(f"Expected argument `mean_scores` for kind {kind}, but got None.")
        check_tensor("mean_scores", mean_scores, tuple(weight.shape), "float")
        ours = mean_scores.double() * (1 if kind == 2 else ours)
    known = ~theirs.isnan()
    if axis == "class":
        alone = (known.sum(dim=1) < 2) & ~known.all(dim=1)  # a single known number would always agree or disagree
        return _cosine(ours.T, theirs.T, known.T, centered).masked_fill(alone, torch.nan)
    if kind > 1 and mean_scores is not None:
        known = known & ~mean_scores.isnan().all(dim=1, keepdim=True)
    return _cosine(ours, theirs, known, centered).masked_fill(known.sum(dim=0) < 2, torch.nan)


def _check(weight: Tensor, annotation: Tensor, kind: Kind, axis: Axis) -> None:
    check_tensor("weight", weight, ("K", "L"), "float")
    check_tensor("annotation", annotation, tuple(weight.shape), "float")
    check_range("annotation", annotation, 0, math.inf)
    check_choice("axis", axis, get_args(Axis))
    if kind not in get_args(Kind):
        raise ValueError(f"Expected argument `kind` to be 1, 2 or 3, but got {kind!r}.")


def _cosine(one: Tensor, other: Tensor, known: Tensor, centered: bool) -> Tensor:
    """Along the first axis, over what is known."""
    one, other = one.masked_fill(~known, 0), other.masked_fill(~known, 0)
    norms = [torch.linalg.vector_norm(vector, dim=0) for vector in (one, other)]
    if centered:
        count = known.sum(dim=0)
        one, other = ((vector - vector.sum(dim=0) / count).masked_fill(~known, 0) for vector in (one, other))
    kept = [torch.linalg.vector_norm(vector, dim=0) for vector in (one, other)]
    undefined = (kept[0] <= _CONSTANT * norms[0]) | (kept[1] <= _CONSTANT * norms[1])
    cosine: Tensor = (one / kept[0] * (other / kept[1])).sum(dim=0).clamp(-1, 1)
    return cosine.masked_fill(undefined, torch.nan)


class ConceptGlobalImportance(ItemMean):
    """Mean cosine between what concepts mean to the classes and what annotators say of the classes (higher is better).

    ``summary`` adds ``centered``, the mean of Pearson's correlations. Kind 1 reads no image.

    Args:
        columns: what a column is, ``"unit"`` where several units may stand for one concept.

    Example:
        >>> metric = ConceptGlobalImportance(torch.tensor([[3.0], [4.0], [0.0]]), torch.tensor([[1.0], [0.0], [0.0]]))
        >>> metric.update(torch.ones(1, 1), torch.eye(3)[:1], torch.tensor([0]))
        >>> metric.compute()
        tensor(0.6000, dtype=torch.float64)
    """

    unit = "cosine"
    averaged_over: AveragedOver = "concept"
    value_range = (-1.0, 1.0)
    higher_is_better = True
    weight: Tensor
    annotation: Tensor
    known: Tensor
    score_sums: Tensor
    counts: Tensor

    def __init__(
        self,
        weight: Tensor,
        annotation: Tensor,
        kind: Kind = 1,
        axis: Axis = "concept",
        centered: bool = False,
        columns: Literal["concept", "unit"] = "concept",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        _check(weight, annotation, kind, axis)
        self.kind: Kind = kind
        self.axis: Axis = axis
        self.centered = centered
        self.averaged_over = "class" if axis == "class" else columns
        self.register_buffer("known", ~annotation.isnan().all(dim=0), persistent=False)
        self.register_buffer("weight", weight.detach().clone(), persistent=False)
        self.register_buffer("annotation", annotation.detach().clone(), persistent=False)
        self.add_state("score_sums", torch.zeros(tuple(weight.shape), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("counts", torch.zeros(len(weight), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, scores: Tensor, logits: Tensor, labels: Tensor) -> None:
        classes, concepts = self.weight.shape
        check_tensor("scores", scores, ("B", concepts), "float")
        check_tensor("logits", logits, (len(scores), classes), "float")
        check_labels(labels, len(scores), classes)
        broken = ~(scores.isfinite().all(dim=1) & logits.isfinite().all(dim=1))
        counted = (logits.argmax(dim=1) == labels) & ~broken
        values = scores.detach().double().masked_fill(~counted[:, None], 0)
        self.score_sums = self.score_sums.index_add(0, labels, values)
        self.counts = self.counts.index_add(0, labels, counted.long())
        self.dropped = self.dropped + broken.sum()

    def values(self) -> Tensor:
        return self._values(self.centered)

    def _additions(self) -> dict[str, Any]:
        return {"centered": float(self._values(centered=True).nanmean())}

    def _values(self, centered: bool) -> Tensor:
        means = self.score_sums / self.counts[:, None]  # 0 / 0 where no image is classified correctly
        weight, table, means = (tensor[:, self.known] for tensor in (self.weight, self.annotation, means))
        values = concept_global_importance(weight, table, means, self.kind, self.axis, centered)
        if self.axis == "class":
            return values
        return values.new_full(self.known.shape, torch.nan).masked_scatter(self.known, values)


class _PerClass(ConceptGlobalImportance):
    averaged_over = "class"


_CLASSES = {"concept": ConceptGlobalImportance, "class": _PerClass}
_QUESTIONS = {
    1: "Are the weights of the concepts like the attributes of the classes?",
    2: "Are the scores of the concepts like the attributes of the classes?",
    3: "Are the weights, times the scores, like the attributes of the classes?",
}
_COMPARED = {1: "cos(θ; V)", 2: "cos(u*, the mean scores of the class's images that are right; V)", 3: "cos(θ ∘ u*; V)"}
_MISREAD = {
    "cgim1_concept": "Two large cosines need not mean that weights and table agree: both may be positive throughout. "
    "`centered` is the correlation; report both.",
    "cgim2_concept": "Scores between 0 and 1 are positive like V: a model with equal scores for all classes has a high "
    "cosine and a `centered` near 0.",
    "cgim3_concept": "Two wrong signs cancel: a negative weight on a negative score counts as a concept in favour of "
    "the class.",
    "cgim1_class": "A concept shared by all classes raises every class; see `cgim1_concept`.",
    "cgim2_class": "A concept shared by all classes raises every class; a class without a correct image is left out.",
    "cgim3_class": "A concept shared by all classes raises every class; see `cgim3_concept`.",
}


def _build(facts: Facts, kind: Kind, axis: Axis) -> ConceptGlobalImportance:
    assert facts.weight is not None
    assert facts.unit_concepts is not None
    concepts = facts.unit_concepts
    table = facts.tables.class_concepts[:, concepts.clamp(min=0)].masked_fill(concepts < 0, torch.nan)
    in_order = torch.arange(facts.tables.class_concepts.shape[1], device=concepts.device)
    one_each = facts.units.concepts is not None and torch.equal(facts.units.concepts, in_order)
    columns: Literal["concept", "unit"] = "concept" if one_each else "unit"
    return _CLASSES[axis](facts.weight.detach().float(), table, kind, axis, columns=columns)


def _entry(kind: Kind, axis: Axis) -> MetricEntry:
    items, other = ("concepts", "classes") if axis == "concept" else ("classes", "concepts")
    return MetricEntry(
        f"concepts/cgim{kind}_{axis}",
        _CLASSES[axis],
        Words(
            question=_QUESTIONS[kind],
            name=f"Concept global importance {kind}, per {axis}",
            formula=f"mean over {items} of {_COMPARED[kind]} along the {other}",
            source="[A25] 3–5" if axis == "concept" else "[A25] 6–8",
            misread=_MISREAD[f"cgim{kind}_{axis}"],
        ),
        partial(_build, kind=kind, axis=axis),
        needs=("weight", "single_label", "named_units", "class_concepts"),
    )


GLOBAL_IMPORTANCE = tuple(_entry(kind, axis) for axis, kind in product(get_args(Axis), get_args(Kind)))
