"""Mean recall over classes, and the confusion table that it shares with the macro F1."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from protometry.metrics.base import ItemMean
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.general.accuracy import check_single_label
from protometry.metrics.primitives.checks import check_at_least
from protometry.metrics.primitives.intervals import stratified_wilson_interval
from protometry.metrics.primitives.regions import all_finite


def confusion_cells(
    logits: Tensor, labels: Tensor, num_classes: int, abstained: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Cell of each image in the flat ``(K, K + 1)`` confusion table, and what it adds there.

    The last column counts images without a prediction; an image with a logit that is not finite adds 0.
    """
    check_single_label(logits, labels, abstained)
    if logits.shape[1] != num_classes:
        raise ValueError(
            f"Expected argument `logits` to have num_classes = {num_classes} columns, but got {logits.shape[1]}."
        )
    columns = num_classes + 1
    predicted = logits.max(dim=1).indices  # several times faster than `argmax` on a CPU
    cells = labels * columns + (predicted if abstained is None else predicted.masked_fill(abstained, num_classes))
    return cells, all_finite(logits, dim=1).long()


class ClassMean(ItemMean):
    """Mean over the classes or labels that have an image."""

    @abstractmethod
    def images(self) -> Tensor:
        """``(K,)`` int64 images of every class or label that count."""

    def _additions(self) -> dict[str, Any]:
        lacking = int((self.images() == 0).sum())
        return {"without_images": lacking} if lacking else {}


class ConfusionMean(ClassMean):
    """Mean over classes of a statistic of the confusion table; its interval is over the images of each class."""

    unit = "fraction"
    averaged_over = "class"
    higher_is_better = True
    confusion: Tensor

    def __init__(self, num_classes: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_at_least("num_classes", num_classes, 1)
        self.num_classes = num_classes
        counts = torch.zeros(num_classes, num_classes + 1, dtype=torch.int64)  # the last column: no prediction
        self.add_state("confusion", counts, dist_reduce_fx="sum")

    @staticmethod
    @abstractmethod
    def statistic(confusion: Tensor) -> Tensor:
        """Value of every class, ``(K, K + 1)`` to ``(K,)``."""

    def update(self, logits: Tensor, labels: Tensor, abstained: Tensor | None = None) -> None:
        cells, counted = confusion_cells(logits, labels, self.num_classes, abstained)
        with torch.inference_mode():  # in place, wherever the state was made: it has K times K + 1 entries
            self.confusion.view(-1).scatter_add_(0, cells, counted)
        self.dropped = self.dropped + (len(labels) - counted.sum())

    def values(self) -> Tensor:
        return self.statistic(self.confusion)

    def images(self) -> Tensor:
        return self.confusion.sum(dim=1)

    def _interval_of(self, values: Tensor, undefined: Tensor) -> tuple[Tensor, Tensor]:
        value = values.sum() / (~undefined).sum()
        return stratified_wilson_interval(value, self.confusion.diagonal(), self.images())


def balanced_accuracy(confusion: Tensor) -> Tensor:
    """Recall of every class.

    Source: Schlinge et al. (2025), section 5: ``tp / (tp + fn)``.

    Args:
        confusion: ``(K, K)`` int64 counts, rows are the truth; a further column counts images without a prediction.

    Returns:
        ``(K,)`` float64 in [0, 1], NaN where a class has no sample. Higher is better.
    """
    return confusion.diagonal().double() / confusion.sum(dim=1)


class BalancedAccuracy(ConfusionMean):
    """Mean recall over the classes that have an image (higher is better).

    An image on which the model abstains is a false negative of its class.

    Example:
        >>> metric = BalancedAccuracy(num_classes=2)
        >>> metric.update(torch.tensor([[2.0, 1.0], [0.0, 1.0], [3.0, 1.0]]), torch.tensor([0, 1, 1]))
        >>> metric.compute()  # (1 / 1 + 1 / 2) / 2
        tensor(0.7500, dtype=torch.float64)
    """

    statistic = staticmethod(balanced_accuracy)


BALANCED_ACCURACY = MetricEntry(
    "general/balanced_accuracy",
    BalancedAccuracy,
    Words(
        question="The same, with every class counting equally.",
        name="Balanced accuracy",
        formula="mean over classes of tp / (tp + fn)",
        source="[S25] 5",
        misread="A class of three images weighs as much as one of three hundred; a lucky one moves the number.",
    ),
    lambda facts: BalancedAccuracy(facts.num_classes),
    needs=("single_label",),
)
