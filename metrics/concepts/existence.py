"""Existence of the concepts that decide on an image."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from protometry.metrics.base import ImageMean
from protometry.metrics.concepts.ranked_concepts import (
    Order,
    RankedConcepts,
    Ranking,
    most_important,
    named_weight,
    ranked_entry,
)
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.facts import Facts
from protometry.metrics.primitives.checks import check_choice, check_labels, check_range, check_tensor, check_values
from protometry.metrics.primitives.truth import check_truth

Subset = Literal["all", "correct"]


def concept_existence(importance: Tensor, concept_labels: Tensor, k: int) -> Tensor:
    """Share of the k most important concepts that the image has.

    Source: Aysel et al. (2025), equation 9, with l = ``k``. Concepts that are not eligible are left out: with fewer
    than k of the others, the share is of those.

    Args:
        importance: ``(B, L)`` float, see :func:`concept_importance`; minus infinity for a concept that is not eligible.
        concept_labels: ``(B, L)`` bool, the concepts of the image, or float with NaN where unknown: the share is of
            those that are known among the k.
        k: number of concepts, 1 to L.

    Returns:
        ``(B,)`` float64 in [0, 1], higher is better; NaN where none of the k is eligible and known, and where an
        importance is NaN or infinite.
    """
    check_truth("concept_labels", concept_labels, tuple(importance.shape))
    ids, eligible = most_important(importance, k)
    truth = concept_labels.gather(1, ids).double().masked_fill(~eligible, torch.nan)
    return truth.nanmean(dim=1)


def concept_existence_baselines(prevalence: Tensor, k: int, order: Tensor | None = None) -> dict[str, Tensor]:
    """The values of rankings that never look at the image.

    Args:
        prevalence: ``(L,)`` float in [0, 1], share of the images with each concept.
        k: number of concepts, 1 to L.
        order: ``(L,)`` int64, a ranking of the concepts, such as by how frequent they are in training; by
            ``prevalence`` itself, ties to the lower index, if None.

    Returns:
        Scalars, float64: ``chance``, of a random ranking, is the mean prevalence; ``prevalence`` the mean over the
        first k concepts of ``order``.
    """
    check_tensor("prevalence", prevalence, ("L",), "float")
    check_range("prevalence", prevalence, 0, 1)
    by_prevalence, _ = most_important(prevalence[None], k)
    if order is not None:
        _check_order("order", order, len(prevalence))
    first = by_prevalence[0] if order is None else order[:k]
    return {"chance": prevalence.double().mean(), "prevalence": prevalence.double()[first].mean()}


def _check_order(name: str, order: Tensor, concepts: int) -> None:
    check_tensor(name, order, (concepts,), "int64")
    once = order.sort().values == torch.arange(concepts, device=order.device)
    check_values(once, f"Expected argument `{name}` to hold every concept once, but got others.")


class ConceptExistence(RankedConcepts, ImageMean):
    """Mean share of the k most important concepts of a decision that the image has (higher is better).

    ``summary`` adds two rankings that never look at the image: ``chance``, a random one, and ``prevalence``, the
    concepts by how frequent they are.

    Args:
        prevalence_order: ``(L,)`` int64, the concepts by how frequent they are in the training images; if None, by how
            frequent they are in the images themselves, and the lift over them is NaN.

    Example:
        >>> metric = ConceptExistence(torch.tensor([[-1.0, 2.0, 1.0]]), k=2)
        >>> labels = torch.tensor([[False, True, False]])
        >>> metric.update(torch.tensor([[-0.9, 0.2, -0.5]]), torch.zeros(1, 1), torch.tensor([0]), labels)
        >>> metric.compute()  # of 0.9, 0.4, -0.5 the second is there
        tensor(0.5000, dtype=torch.float64)
    """

    compared: ClassVar = ("chance", "prevalence")
    prevalence_order: Tensor | None
    concept_counts: Tensor

    def __init__(
        self,
        weight: Tensor,
        k: int = 5,
        ranking: Ranking = "contribution",
        order: Order = "signed",
        subset: Subset = "all",
        prevalence_order: Tensor | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(weight=weight, k=k, ranking=ranking, order=order, **kwargs)
        check_choice("subset", subset, get_args(Subset))
        if prevalence_order is not None:
            _check_order("prevalence_order", prevalence_order, weight.shape[1])
        self.subset = subset
        self.register_buffer("prevalence_order", prevalence_order, persistent=False)
        # images with each concept, and of which it is known
        self.add_state("concept_counts", torch.zeros(2, weight.shape[1], dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, scores: Tensor, logits: Tensor, labels: Tensor, concept_labels: Tensor) -> None:
        check_tensor("logits", logits, ("B", len(self.weight)), "float")
        check_labels(labels, *logits.shape)
        predictions = logits.argmax(dim=1)
        values = concept_existence(self._importance(scores, predictions), concept_labels, self.k)
        if self.subset == "correct":
            values = values.masked_fill(predictions != labels, torch.nan)
        self._accumulate(values)
        counted = torch.stack([concept_labels == 1, ~concept_labels.isnan()]) & ~values.isnan()[:, None]
        self.concept_counts = self.concept_counts + counted.sum(dim=1)
        chance = concept_labels.double().nanmean(dim=1)
        constant = torch.full_like(chance, torch.nan)
        if self.prevalence_order is not None:
            constant = concept_labels[:, self.prevalence_order[: self.k]].double().nanmean(dim=1)
        self._compare(values[:, None], torch.stack([chance, constant])[:, :, None])

    def baselines(self) -> dict[str, Tensor]:
        """``chance`` and ``prevalence`` on the images seen; float64 scalars, NaN without any."""
        shares = self.concept_counts[0].double() / self.concept_counts[1]
        known = shares[shares.isfinite()]
        if self.prevalence_order is not None or not len(known):
            return super().baselines()
        of_themselves = concept_existence_baselines(known, min(self.k, len(known)))
        return super().baselines() | {"prevalence": of_themselves["prevalence"]}


_MISREAD = {
    1: "A constant list of frequent concepts may score as high: read `lift_over_prevalence`.",
    3: 'A negative weight on a negative score ranks high, too: "not white" then counts as white.',
    5: "An image with fewer than 5 concepts cannot reach 1; of 5 concepts in all, every ranking equals chance.",
}


def _build(facts: Facts, k: int, ranking: Ranking, order: Order, subset: Subset) -> ConceptExistence:
    assert facts.unit_concepts is not None
    assert facts.concept_order is not None
    rank = facts.concept_order.argsort()  # of each concept in the order of the training images
    units = rank[facts.unit_concepts[facts.named]].argsort(stable=True)
    return ConceptExistence(named_weight(facts), k, ranking, order, subset, prevalence_order=units)


def existence_entry(k: int, ranking: Ranking, order: Order, subset: Subset) -> MetricEntry:
    """The entry of one ranking."""
    return ranked_entry(
        f"cem@{k}",
        (ranking, order, subset),
        ConceptExistence,
        Words(
            question="Are the concepts that decided in the image?",
            name=f"Concept existence @{k}",
            formula=f"mean share of the {k} concept{'' if k == 1 else 's'} of largest θ_k̂j u_j that the image has",
            source="[A25] 9",
            misread=_MISREAD[k],
        ),
        partial(_build, k=k, ranking=ranking, order=order, subset=subset),
        needs=("concepts_class|concepts_image", f"concepts@{k}"),
    )
