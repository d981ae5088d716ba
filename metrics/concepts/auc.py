"""How well the scores of units separate images with a concept from images without, and which concept names a unit."""

from __future__ import annotations

import torch
from torch import Tensor

from protometry.metrics.concepts.prediction import CONCEPTS, ConceptScores, build
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_tensor
from protometry.metrics.primitives.truth import check_truth


def concept_auc(scores: Tensor, concept_labels: Tensor) -> Tensor:
    """Area under the ROC curve of every unit for every concept.

    Source: Mann and Whitney (1947): the probability that the unit scores higher on an image with the concept than on
    one without, ties counting one half.

    Args:
        scores: ``(N, U)`` float, finite.
        concept_labels: ``(N, L)`` bool, or float with NaN for an image of which it is unknown, which is left out.

    Returns:
        ``(U, L)`` float64 in [0, 1]; NaN for a concept that all images have, or none.

    Example:
        >>> concept_auc(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[0.0], [torch.nan], [1.0]]))
        tensor([[1.]], dtype=torch.float64)
    """
    check_tensor("scores", scores, ("N", "U"), "float")
    check_truth("concept_labels", concept_labels, (len(scores), "L"))
    areas = scores.new_empty(scores.shape[1], concept_labels.shape[1], dtype=torch.float64)
    for images, concepts in alike(concept_labels):
        columns = scores.detach()[images].T.contiguous()
        ordered = columns.sort(dim=1).values
        below, upto = (torch.searchsorted(ordered, columns, right=right) for right in (False, True))
        ranks = (below + upto + 1).double() / 2  # of 1 to N, the mean rank of those that tie
        present = concept_labels[images][:, concepts].double()
        positive = present.sum(dim=0)
        wins = ranks @ present - positive * (positive + 1) / 2
        areas[:, concepts] = wins / (positive * (len(present) - positive))
    return areas


def alike(concept_labels: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Groups of concepts that are known of the same images, so that each group can be measured at once.

    Args:
        concept_labels: ``(N, L)``, as of :func:`concept_auc`.

    Returns:
        ``(N,)`` bool images and ``(L,)`` bool concepts of each group, one group of everything if all is known.

    Example:
        >>> [(images.tolist(), concepts.tolist()) for images, concepts in alike(torch.tensor([[1.0, torch.nan]]))]
        [([False], [False, True]), ([True], [True, False])]
    """
    unknown = concept_labels.isnan()
    if not unknown.any():
        return [(~unknown[:, :0].any(dim=1), ~unknown[:0].any(dim=0))]
    known, group = torch.unique(~unknown, dim=1, return_inverse=True)
    return [(images, group == number) for number, images in enumerate(known.T)]


def name_units(auc: Tensor, least: float = 0.6) -> Tensor:
    """The concept that names each unit: the one with the largest area under the curve.

    Source: none.

    Args:
        auc: ``(U, L)`` float, see :func:`concept_auc`; NaN names no unit.
        least: the area below which a unit has no name.

    Returns:
        ``(U,)`` int64, ties to the lower index, -1 for a unit without a name.

    Example:
        >>> name_units(torch.tensor([[0.9, 0.9], [0.5, 0.55]]))
        tensor([ 0, -1])
    """
    check_tensor("auc", auc, ("U", "L"), "float")
    best = auc.nan_to_num(nan=-1.0).amax(dim=1)
    first = (auc == best[:, None]).int().argmax(dim=1)
    return first.masked_fill(~(best >= least), -1)


class ConceptAUC(ConceptScores):
    """Mean over concepts of the area under the ROC curve of their scores (higher is better).

    ``majority`` is 1/2, as of every prediction that is the same for all images.

    Example:
        >>> metric = ConceptAUC(torch.tensor([0]), num_concepts=1)
        >>> metric.update(torch.tensor([[3.0], [1.0], [2.0]]), torch.tensor([[True], [True], [False]]))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    higher_is_better = True

    def update(self, scores: Tensor, concept_labels: Tensor) -> None:
        self._keep(scores, concept_labels)

    def values(self) -> Tensor:
        scores, present, _ = self._kept()
        return self._of_all(concept_auc(scores, present).diagonal())

    def _majority(self) -> tuple[Tensor, Tensor]:
        half = torch.full((len(self.units),), 0.5, dtype=torch.float64, device=self.units.device)
        return half, half


AUC = MetricEntry(
    "concepts/auc",
    ConceptAUC,
    Words(
        question="How well do scores separate images with a concept from those without?",
        name="Area under the ROC curve",
        formula="mean over concepts of the probability that an image with the concept scores higher than one without; "
        "ties count 1/2",
        source="Mann and Whitney 1947",
        misread="It depends only on the order: probabilities may be far off. With class-level labels it tests classes.",
    ),
    lambda facts: build(facts, ConceptAUC),
    needs=CONCEPTS,
)
