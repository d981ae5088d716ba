"""How much of a model's accuracy the scores of its concepts account for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from protometry.metrics.base import ImageRatio
from protometry.metrics.concepts.effective_concepts import SIZES
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.general.accuracy import accuracy
from protometry.metrics.primitives.checks import check_at_least, check_tensor
from protometry.metrics.primitives.intervals import ratio_interval


class ConceptCompleteness(ImageRatio):
    """Accuracy above chance of a head on concept scores, as a share of the model's own (higher is better).

    Source: Yeh et al. (2020), completeness score: ``(A_c - a) / (A_f - a)`` with the accuracy A_c of the best
    classifier that reads concept scores only, the accuracy A_f of the model, and chance a = 1 / K. The text of the
    paper could not be consulted for this. Deviation: the classifier is a linear head, solved on training images, with
    at most 30 weights per class on average
    (:func:`~protometry.lightning_modules.heads.sparse_path.heads_with_weights`); theirs is a small network followed by
    the upper layers of the model.

    ``summary`` adds ``concepts_alone`` and ``whole_model``, the two accuracies. The interval is for a ratio of paired
    values. Two images on which only one of the classifiers is right are added first, because the interval would be too
    narrow where both agree on most images (Bonett and Price 2012, for differences of shares). It does not include how
    the head would vary with other training images.

    Args:
        num_classes: K.

    Inputs:
        concept_head_logits: ``(B, K)`` float, of the head on concept scores.

    Example:
        >>> metric = ConceptCompleteness(num_classes=2)
        >>> logits = torch.tensor([[1.0, 0.0]] * 4)
        >>> metric.update(logits, torch.tensor([[1.0, 0.0]] * 3 + [[0.0, 1.0]]), torch.tensor([0, 0, 0, 0]))
        >>> metric.compute()  # (3/4 - 1/2) / (1 - 1/2)
        tensor(0.5000, dtype=torch.float64)
    """

    unit = "ratio"
    higher_is_better = True
    undefined = "the model is not more accurate than chance, or no score of a concept varies over the training images"

    def __init__(self, num_classes: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_at_least("num_classes", num_classes, 2)
        self.num_classes, self.chance = num_classes, 1 / num_classes

    def update(self, logits: Tensor, concept_head_logits: Tensor, labels: Tensor) -> None:
        check_tensor("logits", logits, ("B", self.num_classes), "float")
        check_tensor("concept_head_logits", concept_head_logits, tuple(logits.shape), "float")
        self._accumulate(*(accuracy(each, labels) - self.chance for each in (concept_head_logits, logits)))

    def _estimate(self) -> tuple[Tensor, Tensor, Tensor]:
        value, n, skipped = super()._estimate()
        undefined = self.sums[1] <= 0
        return value.masked_fill(undefined, torch.nan), n.masked_fill(undefined, 0), skipped + n * undefined

    def _interval(self) -> tuple[Tensor, Tensor]:
        right, wrong = 1 - self.chance, -self.chance
        total, squares, products = right + wrong, right**2 + wrong**2, 2 * right * wrong
        added = self.sums.new_tensor([total, total, squares, squares, products])
        undefined = (self.sums[1] <= 0) | (self.image_count < 2)
        low, high = ratio_interval(self.sums + added, self.image_count + 2)
        return low.masked_fill(undefined, torch.nan), high.masked_fill(undefined, torch.nan)

    def _additions(self) -> dict[str, Any]:
        accuracies = (self.sums[:2] / self.image_count + self.chance).tolist()
        return dict(zip(("concepts_alone", "whole_model"), accuracies, strict=True))


COMPLETENESS = MetricEntry(
    "concepts/completeness",
    ConceptCompleteness,
    Words(
        question="How much of the accuracy do the concepts alone account for?",
        name="Completeness score",
        formula="(A_c − 1/K) / (A − 1/K) with the accuracies A of the model and A_c of a linear head on the scores of "
        f"its concepts, which has at most {SIZES[-1]} weights per class on average and is solved on training images",
        source="[Y20]",
        misread="1 does not mean that the concepts are right: their scores can reveal more about the class than the "
        "concepts do (`concepts/task_leakage`). A nonlinear head might get more out of them. Above 1, the head is more "
        "accurate than the model. Not to be confused with the family `completeness`.",
    ),
    lambda facts: ConceptCompleteness(facts.num_classes),
    needs=("concept_units", "single_label", "training"),
    view="sparse_heads",
)
