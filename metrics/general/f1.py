"""Macro F1: over classes, or over the labels of multilabel data."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.general.accuracy import check_label_sets
from protometry.metrics.general.balanced_accuracy import ClassMean, ConfusionMean
from protometry.metrics.primitives.checks import check_at_least


def label_f1_score(true_positive: Tensor, false_positive: Tensor, false_negative: Tensor) -> Tensor:
    """F1 of every label, ``2 tp / (2 tp + fp + fn)``, from ``(K,)`` int64 counts.

    Returns:
        ``(K,)`` float64 in [0, 1], NaN where a label is neither true nor predicted. Higher is better.
    """
    doubled = 2 * true_positive.double()
    return doubled / (doubled + false_positive + false_negative)


def f1_score(confusion: Tensor) -> Tensor:
    """F1 of every class.

    Source: Schlinge et al. (2025), section 5: ``2 tp / (2 tp + fp + fn)``. A class that is predicted but never true
    scores 0.

    Returns:
        ``(K,)`` float64 in [0, 1], NaN where a class is neither true nor predicted. Higher is better.
    """
    hits = confusion.diagonal()
    predicted = confusion[:, : len(confusion)].sum(dim=0)
    return label_f1_score(hits, predicted - hits, confusion.sum(dim=1) - hits)


class F1Score(ConfusionMean):
    """Mean F1 over the classes that are true or predicted anywhere (higher is better).

    An image on which the model abstains is a false negative of its class.

    Example:
        >>> metric = F1Score(num_classes=2)
        >>> metric.update(torch.tensor([[2.0, 1.0], [0.0, 1.0], [3.0, 1.0]]), torch.tensor([0, 1, 1]))
        >>> metric.compute()  # 2 / 3 for both classes
        tensor(0.6667, dtype=torch.float64)
    """

    statistic = staticmethod(f1_score)


class LabelF1Score(ClassMean):
    """Mean F1 over the labels that are true or predicted anywhere (higher is better).

    A label is predicted where its logit exceeds ``threshold``. One that is unknown of an image (NaN) is left out and
    counted.

    Args:
        threshold: on logits, chosen on the validation split.

    Example:
        >>> metric = LabelF1Score(num_classes=2)
        >>> metric.update(torch.tensor([[1.0, -1.0], [1.0, 1.0]]), torch.tensor([[True, False], [True, False]]))
        >>> metric.compute()  # 1 for the first label, 0 for the second
        tensor(0.5000, dtype=torch.float64)
    """

    unit = "fraction"
    averaged_over = "label"
    higher_is_better = True
    counts: Tensor

    def __init__(self, num_classes: int, threshold: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_at_least("num_classes", num_classes, 1)
        self.threshold = threshold
        self.num_classes = num_classes
        # true positives, false positives, false negatives of every label
        self.add_state("counts", torch.zeros(3, num_classes, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, logits: Tensor, labels: Tensor) -> None:
        if logits.shape[1:] != (self.num_classes,):
            raise ValueError(
                f"Expected argument `logits` to have num_classes = {self.num_classes} columns, "
                f"but got shape {tuple(logits.shape)}."
            )
        check_label_sets(logits, labels)
        predicted, counted = logits > self.threshold, logits.isfinite().all(dim=1, keepdim=True)
        present, absent = labels == 1, labels == 0
        outcomes = torch.stack([predicted & present, predicted & absent, ~predicted & present])
        self.counts = self.counts + (outcomes & counted).sum(dim=1)
        self.dropped = self.dropped + (~counted).sum() + (labels.isnan() & counted).sum()

    def values(self) -> Tensor:
        return label_f1_score(*self.counts)

    def images(self) -> Tensor:
        return self.counts[0] + self.counts[2]


F1 = MetricEntry(
    "general/f1",
    F1Score,
    Words(
        question="Are classes found, and not claimed wrongly, every class counting equally?",
        name="Macro F1",
        formula="mean over classes of 2 tp / (2 tp + fp + fn); multilabel data: over labels",
        source="[S25] 5",
        misread="It falls with few images per class even for equal recall, so compare on the same split only. For "
        "multilabel data its interval is over labels.",
    ),
    lambda facts: LabelF1Score(facts.num_classes, facts.threshold) if facts.multi_label else F1Score(facts.num_classes),
)
