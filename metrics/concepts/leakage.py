"""What predicted concepts say beyond the true ones: about the class, and about each other."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from protometry.metrics.concepts.prediction import PREDICTED, ConceptPrediction, build
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_at_least, check_labels, check_range, check_tensor
from protometry.metrics.primitives.intervals import pairs_interval

_BINS, _WIDTH = 8, 2  # of the log-odds


def _entropy(counts: Tensor) -> Tensor:
    """``(N, m)`` counts to ``(N,)`` nats; 0 of fewer than two outcomes."""
    total = counts.sum(dim=1).double()
    n = counts.clamp(min=1).double()
    logarithm = torch.digamma(n) + (0.5 - n % 2) * (torch.digamma((n + 1) / 2) - torch.digamma(n / 2))
    entropy = total.log() - (counts * logarithm).sum(dim=1) / total
    return entropy.masked_fill((counts > 0).sum(dim=1) < 2, 0)


def mutual_information(table: Tensor) -> Tensor:
    """Mutual information of the rows and the columns of a table of counts, and the entropy of each.

    Source: ``I = H(rows) + H(columns) - H(cells)`` with the entropy of Grassberger (2003), *Entropy estimates from
    insufficient samplings*: ``log N - Σ n G(n) / N`` of counts n with sum N, where ``G(n) = ψ(n) + (-1)^n (ψ((n + 1) /
    2) - ψ(n / 2)) / 2`` takes the place of log n. The logarithm itself would find information by chance, the more the
    fewer images there are for a cell. I below 0 becomes 0.

    Args:
        table: ``(V, r, c)`` int64, counts of V pairs of variables.

    Returns:
        ``(3, V)`` float64 in nats: the mutual information, at most either entropy, and the entropies of rows and
        columns, 0 of a variable that is constant.

    Example:
        >>> mutual_information(torch.tensor([[[200, 0], [0, 200]]]))[:, 0]  # near log 2
        tensor([0.6931, 0.6931, 0.6931], dtype=torch.float64)
    """
    check_tensor("table", table, ("V", "r", "c"), "int64")
    rows, columns, cells = (_entropy(counts) for counts in (table.sum(dim=2), table.sum(dim=1), table.flatten(1)))
    information = (rows + columns - cells).clamp(min=0).minimum(rows).minimum(columns)  # whatever the rounding
    return torch.stack([information, rows, columns])


class _Leakage(ConceptPrediction):
    """Base of both: tables of counts for predicted and for true concepts, from the same images.

    A probability p counts in one of 8 bins of its log-odds ``log(p / (1 - p))``, with the edges -6, -4, ..., 6: the
    probabilities .0025, .018, .12, 1/2, .88, .982 and .9975. Fixed edges let the tables of batches and processes add
    up. Equal bins of p would put .99 and .9999 together, which a head that reads log-odds tells apart.
    """

    higher_is_better = False
    predicted: Tensor
    true: Tensor

    def _add_tables(self, predicted: tuple[int, ...], true: tuple[int, ...]) -> None:
        for name, shape in (("predicted", predicted), ("true", true)):
            self.add_state(name, torch.zeros(shape, dtype=torch.int64), dist_reduce_fx="sum")

    def _levels(self, concept_probabilities: Tensor, concept_labels: Tensor) -> tuple[Tensor, Tensor]:
        """The bin of each predicted concept and the value of each true one, ``(B, L, 8)`` and ``(B, L, 2)``.

        Both are 0 or 1 in float64, and 0 throughout where the prediction is not finite or the true one is unknown.
        """
        predicted, present = self._by_concept(concept_probabilities, concept_labels, "concept_probabilities")
        check_range("concept_probabilities", predicted, 0, 1)
        finite = predicted.isfinite()
        position = predicted.double().masked_fill(~finite, 0.5).logit() / _WIDTH + _BINS / 2
        index = position.floor().clamp(0, _BINS - 1).long()
        kept = finite[:, :, None].double()
        return one_hot(index, _BINS) * kept, one_hot(present.long(), 2) * kept

    def _additions(self) -> dict[str, Any]:
        """None: a constant prediction, the majority baseline, says nothing."""
        return {}


class ConceptTaskLeakage(_Leakage):
    """Mean over concepts of how much more a predicted concept says about the class than the true one (lower is better).

    Source: Parisini et al. (2025), concepts-task leakage score: ``max(0, (I(ĉ; y) - I(c; y)) / H(y))`` of each concept,
    with ĉ = ``concept_probabilities``, c = ``concept_labels`` and y = ``labels``. Deviation: ĉ is
    divided into bins, see :func:`mutual_information`; the paper estimates the information from nearest neighbours
    (Kraskov et al. 2004) and, for concepts with embeddings, from the embeddings. Undefined if all images belong to one
    class.

    Args:
        num_classes: K.

    Example:
        >>> metric = ConceptTaskLeakage(torch.tensor([0]), num_concepts=1, num_classes=2)
        >>> absent = torch.zeros(4, 1, dtype=torch.bool)
        >>> metric.update(torch.tensor([[0.1], [0.1], [0.4], [0.4]]), absent, torch.tensor([0, 0, 1, 1]))
        >>> metric.compute()
        tensor(1., dtype=torch.float64)
    """

    undefined = "all images are of one class, or no concept is predicted"

    def __init__(
        self, concepts: Tensor, num_concepts: int, active: Tensor | None = None, *, num_classes: int, **kwargs: Any
    ) -> None:
        super().__init__(concepts, num_concepts, active, **kwargs)
        check_at_least("num_classes", num_classes, 1)
        self._add_tables((num_concepts, _BINS, num_classes), (num_concepts, 2, num_classes))

    def update(self, concept_probabilities: Tensor, concept_labels: Tensor, labels: Tensor) -> None:
        levels = self._levels(concept_probabilities, concept_labels)
        check_labels(labels, len(concept_labels), self.true.shape[2])
        classes = one_hot(labels, self.true.shape[2]).double()
        predicted, true = (torch.einsum("bli,bk->lik", level, classes).long() for level in levels)
        self.predicted, self.true = self.predicted + predicted, self.true + true

    def values(self) -> Tensor:
        said, _, label = mutual_information(self.predicted)
        excess: Tensor = (said - mutual_information(self.true)[0]) / label
        return excess.clamp(min=0)


class InterconceptLeakage(_Leakage):
    """Mean over concepts of how much more predictions say about each other than the true concepts do (lower is better).

    Source: Parisini et al. (2025), interconcept leakage score: for concept i the mean over the others j of
    ``max(0, I(ĉ_i; ĉ_j) / sqrt(H(ĉ_i) H(ĉ_j)) - I(c_i; c_j) / sqrt(H(c_i) H(c_j)))``. Deviation: as in
    :class:`ConceptTaskLeakage`, also for H(ĉ). A pair is undefined if one of both concepts, predicted or true, is the
    same for all images. The interval is for other concepts on the same images
    (:func:`~protometry.metrics.functional.pairs_interval`).

    The tables of pairs take 544 L² bytes, 7 MB for 112 concepts.
    """

    undefined = "there are no two concepts that vary over the images, as predicted and in truth"

    def __init__(self, concepts: Tensor, num_concepts: int, active: Tensor | None = None, **kwargs: Any) -> None:
        super().__init__(concepts, num_concepts, active, **kwargs)
        pairs = (num_concepts, num_concepts)
        self._add_tables((*pairs, _BINS, _BINS), (*pairs, 2, 2))

    def update(self, concept_probabilities: Tensor, concept_labels: Tensor) -> None:
        levels = self._levels(concept_probabilities, concept_labels)
        predicted, true = (torch.einsum("bli,bmj->lmij", level, level).long() for level in levels)
        self.predicted, self.true = self.predicted + predicted, self.true + true

    def values(self) -> Tensor:
        leakage: Tensor = self.pairs().nanmean(dim=1)
        return leakage

    def _interval_of(self, values: Tensor, undefined: Tensor) -> tuple[Tensor, Tensor]:
        return pairs_interval(self.pairs(), value_range=self.value_range)

    def pairs(self) -> Tensor:
        """``(L, L)`` float64, NaN where undefined, as of a concept with itself.

        Computed from the current states, as :meth:`values`.
        """
        shares = []
        for table in (self.predicted, self.true):
            information, one, other = mutual_information(table.flatten(0, 1)).view(3, *table.shape[:2])
            shares.append(information / (one * other).sqrt())
        excess = (shares[0] - shares[1]).clamp(min=0)
        same = torch.eye(len(excess), dtype=torch.bool, device=excess.device)
        pairs: Tensor = excess.masked_fill(same, torch.nan)
        return pairs


LEAKAGE = (
    MetricEntry(
        "concepts/task_leakage",
        ConceptTaskLeakage,
        Words(
            question="Do predicted concepts say more about the class than the true ones?",
            name="Concepts-task leakage",
            formula=f"mean over concepts of max(0; I(p; y) − I(c; y)) / H(y), p in {_BINS} bins of its log-odds",
            source="[P25]",
            misread="A concept that says less than the true one has 0: wrong concepts may have it. Few images of many "
            "classes raise it by chance: .004 with 400 of 20.",
            finding="Predicted concepts say more about the class than the true ones, by {value} of its entropy.",
        ),
        lambda facts: build(facts, ConceptTaskLeakage, num_classes=facts.num_classes),
        needs=PREDICTED,
        whole_split=True,
    ),
    MetricEntry(
        "concepts/interconcept_leakage",
        InterconceptLeakage,
        Words(
            question="Do predicted concepts say more about each other than the true ones?",
            name="Interconcept leakage",
            formula="mean over pairs of concepts of max(0; I(p; p′) / √(H(p) H(p′)) − I(c; c′) / √(H(c) H(c′)))",
            source="[P25]",
            misread="Errors that two concepts make on the same images count, whatever causes them.",
            finding="Predicted concepts say more about each other than the true ones, by {value} of their entropy.",
        ),
        lambda facts: build(facts, InterconceptLeakage),
        needs=PREDICTED,
        whole_split=True,
    ),
)
