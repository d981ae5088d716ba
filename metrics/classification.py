"""How often the model is right, for one label per image and for several."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from metrics.functional.classification import (
    _confusion_table,
    _label_counts,
    accuracy,
    balanced_accuracy,
    f1_score,
    label_f1_score,
    subset_accuracy,
    top_k_accuracy,
)
from metrics.functional.primitives.intervals import bootstrap_interval
from metrics.image_mean import ImageMean
from metrics.item_mean import ItemMean
from metrics.summary import AveragedOver


def _check_num_classes(num_classes: int) -> None:
    if num_classes < 1:
        raise ValueError(f"Expected argument `num_classes` to be at least 1, but got {num_classes}.")


class Accuracy(ImageMean):
    """Share of images whose largest logit is that of the true class.

    Source and definition: :func:`metrics.functional.accuracy`. Interval: Wilson.

    Args:
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Example:
        >>> metric = Accuracy()
        >>> metric.update(torch.tensor([[2.0, 1.0], [0.0, 1.0]]), torch.tensor([0, 0]))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    name = "accuracy"
    unit = "fraction"
    reads = ("logits", "labels", "abstained")
    higher_is_better = True
    interval = "wilson"

    def update(self, logits: Tensor, labels: Tensor, abstained: Tensor | None = None) -> None:
        """Add a batch.

        Args:
            logits: ``(B, K)`` float.
            labels: ``(B,)`` int64.
            abstained: ``(B,)`` bool, the model decided nothing, which is wrong; by default it always decides.
        """
        self._accumulate(accuracy(logits, labels, abstained))


class Abstention(ImageMean):
    """Share of images on which the model decides nothing; the metrics of one label per image count them as wrong.

    Source: Nauta et al. (2023), whose PIP-Net abstains where it finds no prototype. Interval: Wilson.

    Args:
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Example:
        >>> metric = Abstention()
        >>> metric.update(torch.tensor([True, False]))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    name = "abstention"
    unit = "fraction"
    reads = ("abstained",)
    higher_is_better = False
    interval = "wilson"

    def update(self, abstained: Tensor) -> None:
        """Add a batch.

        Args:
            abstained: ``(B,)`` bool.
        """
        self._accumulate(abstained.double())


class TopKAccuracy(ImageMean):
    """Share of images whose true class is among the k best.

    Source and definition: :func:`metrics.functional.top_k_accuracy`. Interval: Wilson.

    Args:
        k: number of classes that count as a hit, at least 1 and below the number of classes.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: if ``k`` is below 1.

    Example:
        >>> metric = TopKAccuracy(k=2)
        >>> metric.update(torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]]), torch.tensor([1, 0]))
        >>> metric.name, metric.compute()
        ('top2_accuracy', tensor(0.5000, dtype=torch.float64))
    """

    name = "top3_accuracy"
    unit = "fraction"
    reads = ("logits", "labels", "abstained")
    higher_is_better = True
    interval = "wilson"

    def __init__(self, k: int = 3, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if k < 1:
            raise ValueError(f"Expected argument `k` to be at least 1, but got {k}.")
        self.k = k
        self.name = f"top{k}_accuracy"

    def update(self, logits: Tensor, labels: Tensor, abstained: Tensor | None = None) -> None:
        """Add a batch.

        Args:
            logits: ``(B, K)`` float.
            labels: ``(B,)`` int64.
            abstained: ``(B,)`` bool, the model decided nothing, which is wrong; by default it always decides.
        """
        self._accumulate(top_k_accuracy(logits, labels, self.k, abstained))


class SubsetAccuracy(ImageMean):
    """Share of images whose predicted label set is exactly the true one.

    Source and definition: :func:`metrics.functional.subset_accuracy`. Interval: Wilson.

    Args:
        threshold: on logits, chosen on the validation split.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Example:
        >>> metric = SubsetAccuracy()
        >>> metric.update(torch.tensor([[1.0, -1.0], [1.0, 1.0]]), torch.tensor([[True, False], [True, False]]))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    name = "accuracy"
    unit = "fraction"
    reads = ("logits", "labels")
    higher_is_better = True
    interval = "wilson"

    def __init__(self, threshold: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.threshold = threshold

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add a batch.

        Args:
            logits: ``(B, K)`` float.
            labels: ``(B, K)`` bool.
        """
        self._accumulate(subset_accuracy(logits, labels, self.threshold))


class ConfusionMean(ItemMean):
    """Mean over classes of a statistic of the confusion table; its interval redraws images from that table."""

    unit = "fraction"
    reads = ("logits", "labels", "abstained")
    averaged_over: AveragedOver = "class"
    higher_is_better = True
    confusion: Tensor

    def __init__(self, num_classes: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        _check_num_classes(num_classes)
        self.num_classes = num_classes
        counts = torch.zeros(num_classes, num_classes + 1, dtype=torch.int64)  # the last column: no prediction
        self.add_state("confusion", counts, dist_reduce_fx="sum")

    @staticmethod
    @abstractmethod
    def statistic(confusion: Tensor) -> Tensor:
        """Value of every class, ``(K, K + 1)`` to ``(K,)``."""

    def update(self, logits: Tensor, labels: Tensor, abstained: Tensor | None = None) -> None:
        """Add a batch.

        Args:
            logits: ``(B, K)`` float.
            labels: ``(B,)`` int64.
            abstained: ``(B,)`` bool, the model decided nothing, which is wrong; by default it always decides.
        """
        counts = _confusion_table(logits, labels, self.num_classes, abstained)
        self.confusion = self.confusion + counts
        self.dropped = self.dropped + (len(labels) - counts.sum())

    def values(self) -> Tensor:
        """``(K,)`` float64, NaN where undefined."""
        return self.statistic(self.confusion)

    def _interval(self) -> tuple[Tensor, Tensor]:
        return bootstrap_interval(self.confusion, self.statistic)


class BalancedAccuracy(ConfusionMean):
    """Mean recall over the classes with a sample.

    Source and definition: :func:`metrics.functional.balanced_accuracy`. Interval: bootstrap of the confusion table.

    Args:
        num_classes: K.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: if ``num_classes`` is below 1.

    Example:
        >>> metric = BalancedAccuracy(num_classes=2)
        >>> metric.update(torch.tensor([[2.0, 1.0], [0.0, 1.0], [3.0, 1.0]]), torch.tensor([0, 1, 1]))
        >>> metric.compute()
        tensor(0.7500, dtype=torch.float64)
    """

    name = "balanced_accuracy"

    @staticmethod
    def statistic(confusion: Tensor) -> Tensor:
        """Recall of every class, ``(K, K + 1)`` to ``(K,)``."""
        return balanced_accuracy(confusion)


class F1Score(ConfusionMean):
    """Mean F1 over the classes that are true or predicted anywhere.

    Source and definition: :func:`metrics.functional.f1_score`. Interval: bootstrap of the confusion table.

    Args:
        num_classes: K.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: if ``num_classes`` is below 1.

    Example:
        >>> metric = F1Score(num_classes=2)
        >>> metric.update(torch.tensor([[2.0, 1.0], [0.0, 1.0], [3.0, 1.0]]), torch.tensor([0, 1, 1]))
        >>> metric.compute()
        tensor(0.6667, dtype=torch.float64)
    """

    name = "f1"

    @staticmethod
    def statistic(confusion: Tensor) -> Tensor:
        """F1 of every class, ``(K, K + 1)`` to ``(K,)``."""
        return f1_score(confusion)


class LabelF1Score(ItemMean):
    """Mean F1 over the labels that are true or predicted anywhere.

    Source and definition: :func:`metrics.functional.label_f1_score`. Interval: spread of the labels.

    Args:
        num_classes: K.
        threshold: on logits, chosen on the validation split.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: if ``num_classes`` is below 1.

    Example:
        >>> metric = LabelF1Score(num_classes=2)
        >>> metric.update(torch.tensor([[1.0, -1.0], [1.0, 1.0]]), torch.tensor([[True, False], [True, False]]))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    name = "f1"
    unit = "fraction"
    reads = ("logits", "labels")
    averaged_over: AveragedOver = "label"
    higher_is_better = True
    counts: Tensor

    def __init__(self, num_classes: int, threshold: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        _check_num_classes(num_classes)
        self.threshold = threshold
        self.num_classes = num_classes
        # true positives, false positives, false negatives of every label
        self.add_state("counts", torch.zeros(3, num_classes, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add a batch.

        Args:
            logits: ``(B, K)`` float.
            labels: ``(B, K)`` bool.
        """
        if logits.shape[1:] != (self.num_classes,):
            raise ValueError(
                f"Expected argument `logits` to have num_classes = {self.num_classes} columns, "
                f"but got shape {tuple(logits.shape)}."
            )
        self.counts = self.counts + _label_counts(logits, labels, self.threshold)
        self.dropped = self.dropped + (~logits.isfinite().all(dim=1)).sum()

    def values(self) -> Tensor:
        """``(K,)`` float64, NaN where undefined."""
        return label_f1_score(*self.counts)
