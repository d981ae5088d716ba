"""What the score of a concept says about other concepts than the true concept does, alone and with other scores."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from protometry.metrics.concepts.auc import alike, concept_auc
from protometry.metrics.concepts.prediction import CONCEPTS, ConceptScores, build
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_tensor
from protometry.metrics.primitives.intervals import pairs_interval
from protometry.metrics.primitives.perturbation import mix_bits
from protometry.metrics.primitives.truth import check_truth

_STEPS, _RIDGE = 20, 0.01
_DECIMALS = 6  # of correlations and predictions, so that rounding errors neither pass β nor order equal images
_SPLIT_SEED = 4 << 40  # of its own, apart from the noise of perturbed images


def oracle_impurity(scores: Tensor, concept_labels: Tensor) -> Tensor:
    """Difference between what scores and what true concepts say about the concepts.

    Source: Espinosa Zarlenga et al. (2023), oracle impurity score: the root of the mean of its squares is theirs,
    ``2/k ‖π(ĉ, c) - π(c, c)‖_F``, where π_ij is how well a predictor tells concept j from representation i, by the area
    under the ROC curve. Deviation: a representation is one score here, and its predictor, a small network in the paper,
    increases or decreases with it: ``π = max(A, 1 - A)`` with the area A of the score itself, exactly and without
    training.

    Args:
        scores: ``(N, L)`` float, finite, one for each concept.
        concept_labels: ``(N, L)`` bool, or float with NaN where unknown; a pair of concepts is compared on the images
            of which both are known.

    Returns:
        ``(L,)`` float64 in [0, 1], of the score of each concept: the root of the mean over concepts j, itself included,
        of ``4 (π_ij(ĉ, c) - π_ij(c, c))²``, lower is better. A concept j that all images have, or none, is left out;
        NaN if no other is left.

    Example:
        >>> concepts = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
        >>> scores = torch.stack([concepts[:, 0], concepts[:, 0]], dim=1).float()  # both say the first concept
        >>> oracle_impurity(scores, concepts > 0)  # the second: 1 instead of 1/2, and 1/2 instead of 1
        tensor([0., 1.], dtype=torch.float64)
    """
    return _squares(scores, concept_labels).nanmean(dim=1).sqrt()


def _squares(scores: Tensor, concept_labels: Tensor) -> Tensor:
    """``(L, L)`` float64, ``4 (π_ij(ĉ, c) - π_ij(c, c))²``."""
    squares = scores.new_empty(scores.shape[1], concept_labels.shape[1], dtype=torch.float64)
    for images, concepts in alike(concept_labels):
        labels = concept_labels[images]
        areas = (concept_auc(values[:, concepts], labels) for values in (scores[images], labels.double()))
        purity, oracle = (area.maximum(1 - area) for area in areas)
        squares[concepts] = 4 * (purity - oracle).square()
    return squares


def niche_impurity(scores: Tensor, concept_labels: Tensor, fitted: Tensor) -> Tensor:
    """How well a concept is told from the scores that should say nothing about it.

    Source: Espinosa Zarlenga et al. (2023), niche impurity score: the scores i whose correlation with concept j exceeds
    β in size are its niche; the area under the ROC curve of a predictor of j from the scores outside it, integrated
    over β from 0 to 1. Deviations: the predictor is a ridge regression on standardised scores, with a penalty of 0.01
    per image, solved for each niche, where theirs is a network for all scores that sees 0 instead of those inside;
    trapezoids of β = 0, 0.05, ..., 1, while their code stops at 0.95.

    Args:
        scores: ``(N, L)`` float, finite, one for each concept.
        concept_labels: ``(N, L)`` bool, or float with NaN for an image of which it is unknown, which is left out.
        fitted: ``(N,)`` bool, images that correlations and predictors are taken from; the areas are of the others.

    Returns:
        ``(L,)`` float64 in [0, 1], lower is better, 1/2 expected where the scores outside say nothing; NaN for a
        concept that all images of either part have, or none.
    """
    check_tensor("scores", scores, ("N", "L"), "float")
    check_truth("concept_labels", concept_labels, tuple(scores.shape))
    check_tensor("fitted", fitted, (len(scores),), "bool")
    impurity = scores.new_empty(scores.shape[1], dtype=torch.float64)
    for images, concepts in alike(concept_labels):
        impurity[concepts] = _niche_impurity(scores[images], concept_labels[images][:, concepts], fitted[images])
    return impurity


def _niche_impurity(scores: Tensor, concept_labels: Tensor, fitted: Tensor) -> Tensor:
    """``(J,)`` of concepts ``(N, J)`` that are known of all images, told from scores ``(N, L)``."""
    if fitted.all() or not fitted.any():
        return scores.new_full((concept_labels.shape[1],), torch.nan, dtype=torch.float64)
    values, present = scores.detach().double(), concept_labels[fitted].double()
    deviation, mean = torch.std_mean(values[fitted], dim=0, correction=0)
    constant = values[fitted].amin(dim=0) == values[fitted].amax(dim=0)
    values = ((values - mean) / deviation).masked_fill(constant, 0)
    known, judged = values[fitted], values[~fitted]
    gram = known.T @ known / len(known)
    products = (present - present.mean(dim=0)).T @ known / len(known)  # (concepts, scores)
    correlation = (products / present.std(dim=0, correction=0)[:, None]).abs().nan_to_num().round(decimals=_DECIMALS)
    ridge = _RIDGE * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    areas = []
    for step in range(_STEPS + 1):
        outside = (correlation <= step / _STEPS).double()
        systems = gram * outside[:, :, None] * outside[:, None, :] + ridge
        weight = torch.linalg.solve(systems, (products * outside)[:, :, None])[:, :, 0]
        predicted = (judged @ weight.T).round(decimals=_DECIMALS)
        areas.append(concept_auc(predicted, concept_labels[~fitted]).diagonal())
    one_kind = (present == present[:1]).all(dim=0)
    return torch.trapezoid(torch.stack(areas), dx=1 / _STEPS, dim=0).masked_fill(one_kind, torch.nan)


class OracleImpurity(ConceptScores):
    """Root mean square over concepts of the difference of :func:`oracle_impurity` (lower is better).

    The interval is for other concepts on the same images (:func:`~protometry.metrics.functional.pairs_interval`).
    """

    higher_is_better = False
    undefined = "all images have the same concepts, or no concept is predicted"

    def update(self, scores: Tensor, concept_labels: Tensor) -> None:
        self._keep(scores, concept_labels)

    def values(self) -> Tensor:
        scores, present, _ = self._kept()
        return self._of_all(oracle_impurity(scores, present))

    def pairs(self) -> Tensor:
        """``(M, M)`` float64 squares, of the score of a concept with a unit and another such concept; NaN if left out.

        Computed from the current states, as :meth:`values`.
        """
        scores, present, _ = self._kept()
        return _squares(scores, present)

    def _estimate_of(self, values: Tensor, undefined: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        square, n, skipped = super()._estimate_of(values.square(), undefined)
        return square.sqrt(), n, skipped

    def _interval_of(self, values: Tensor, undefined: Tensor) -> tuple[Tensor, Tensor]:
        low, high = pairs_interval(self.pairs(), value_range=self.value_range)
        return low.sqrt(), high.sqrt()

    def _additions(self) -> dict[str, Any]:
        """No majority: a constant score differs from the oracle, too."""
        return {"images_per_unit": len(self._kept()[0])}


class NicheImpurity(ConceptScores):
    """Mean over concepts of how well they are told from scores outside their niche (lower is better).

    Half of the images, drawn by their sample ids, serve for the predictors. ``summary`` adds ``oracle``, the value of
    the true concepts in place of the scores, which is above 1/2 where concepts depend on each other; of the images of
    which all concepts are known. There is no
    interval: since each concept is predicted from the scores of the others, one over concepts would be too narrow.

    Takes 24 L³ bytes, 34 MB for 112 concepts.
    """

    higher_is_better = False
    undefined = "half of the images all have the same concepts, or no concept is predicted"

    def __init__(self, concepts: Tensor, num_concepts: int, active: Tensor | None = None, **kwargs: Any) -> None:
        super().__init__(concepts, num_concepts, active, columns=1, **kwargs)

    def update(self, scores: Tensor, concept_labels: Tensor, sample_ids: Tensor) -> None:
        check_tensor("scores", scores, ("B", self.num_units), "float")
        check_tensor("sample_ids", sample_ids, (len(scores),), "int64")
        self._keep(scores, concept_labels, mix_bits(sample_ids ^ _SPLIT_SEED)[:, None] < 0)

    def values(self) -> Tensor:
        scores, present, fitted = self._kept()
        return self._of_all(niche_impurity(scores, present, fitted[:, 0] > 0))

    def _interval_of(self, values: Tensor, undefined: Tensor) -> tuple[Tensor, Tensor]:
        nothing = values.new_full((), torch.nan)
        return nothing, nothing

    def _additions(self) -> dict[str, Any]:
        _, present, fitted = self._kept()
        known = ~present.isnan().any(dim=1)
        oracle = niche_impurity(present[known].double(), present[known], fitted[known, 0] > 0)
        return {"oracle": float(oracle.nanmean()), "images_per_unit": len(present)}


IMPURITY = (
    MetricEntry(
        "concepts/oracle_impurity",
        OracleImpurity,
        Words(
            question="Do scores say other things about the concepts than true concepts do?",
            name="Oracle impurity score",
            formula="2/L √(Σ over i, j of (π(s_i, c_j) − π(c_i, c_j))²), π = max(AUC; 1 − AUC)",
            source="[E23]",
            misread="A concept that is predicted badly differs from the true one, too: compare with `concepts/auc`. "
            "Few images raise it by chance: .03 with 400 of 29 independent concepts.",
        ),
        lambda facts: build(facts, OracleImpurity),
        needs=CONCEPTS,
        whole_split=True,
    ),
    MetricEntry(
        "concepts/niche_impurity",
        NicheImpurity,
        Words(
            question="Do scores of other concepts together tell a concept?",
            name="Niche impurity score",
            formula="mean over concepts c of ∫ AUC(r; c) dβ, r = ridge regression on the scores with abs(ρ(s; c)) ≤ β",
            source="[E23]",
            misread="1/2 is pure only if concepts are independent: compare with `oracle`, the value of the true ones. "
            "Do not compare probabilities with logits.",
        ),
        lambda facts: build(facts, NicheImpurity),
        needs=CONCEPTS,
        whole_split=True,
    ),
)
