"""Accuracy of single-label classification, micro and per class, and the share of images without a prediction."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from metrics.base import AveragedOver, ImageMean, ItemMean
from metrics.functional.classification import (
    accuracy,
    balanced_accuracy,
    confusion_cells,
    f1_score,
    top_k_accuracy,
)
from metrics.functional.primitives.checks import check_at_least
from metrics.functional.primitives.intervals import stratified_wilson_interval


class Accuracy(ImageMean):
    """Share of images whose largest logit is that of the true class (higher is better).

    Source: Schlinge et al. (2025), section 5: ``1[argmax o(x) = y]`` with o(x) = ``logits`` and y = ``labels``, ties to
    the lowest class. An image on which the model abstains counts as wrong. Interval: Wilson.

    Args:
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        logits: ``(B, K)`` float; images with a logit that is not finite are undefined.
        labels: ``(B,)`` int64 in ``[0, K)``.
        abstained: ``(B,)`` bool, True where the model makes no prediction; None if it always does.

    Example:
        >>> metric = Accuracy()
        >>> metric.update(torch.tensor([[2.0, 1.0], [0.0, 1.0]]), torch.tensor([0, 0]))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    name = "accuracy"
    unit = "fraction"
    value_range = (0.0, 1.0)
    reads = ("logits", "labels", "abstained")
    higher_is_better = True
    interval = "wilson"

    def update(self, logits: Tensor, labels: Tensor, abstained: Tensor | None = None) -> None:
        """Add a batch."""
        self._accumulate(accuracy(logits, labels, abstained))


class Abstention(ImageMean):
    """Share of images on which the model makes no prediction (lower is better).

    Source: Nauta et al. (2023), whose PIP-Net abstains where it finds no prototype. The metrics of single-label
    classification count such images as wrong. Interval: Wilson.

    Args:
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        abstained: ``(B,)`` bool, True where the model makes no prediction.

    Example:
        >>> metric = Abstention()
        >>> metric.update(torch.tensor([True, False]))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    name = "abstention"
    unit = "fraction"
    value_range = (0.0, 1.0)
    reads = ("abstained",)
    higher_is_better = False
    interval = "wilson"

    def update(self, abstained: Tensor) -> None:
        """Add a batch."""
        self._accumulate(abstained.double())


class TopKAccuracy(ImageMean):
    """Share of images whose true class is among the k best (higher is better).

    Source: Schlinge et al. (2025), section 5. A hit has fewer than k better classes, where better is a larger logit or
    an equal one at a lower index, so that constant logits do not score 1. An image on which the model abstains counts
    as wrong. Interval: Wilson.

    Args:
        k: number of classes that count as a hit, at least 1 and below the number of classes.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        logits: ``(B, K)`` float, K > k; images with a logit that is not finite are undefined.
        labels: ``(B,)`` int64 in ``[0, K)``.
        abstained: ``(B,)`` bool, True where the model makes no prediction; None if it always does.

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
    value_range = (0.0, 1.0)
    reads = ("logits", "labels", "abstained")
    higher_is_better = True
    interval = "wilson"

    def __init__(self, k: int = 3, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_at_least("k", k, 1)
        self.k = k
        self.name = f"top{k}_accuracy"

    def update(self, logits: Tensor, labels: Tensor, abstained: Tensor | None = None) -> None:
        """Add a batch."""
        self._accumulate(top_k_accuracy(logits, labels, self.k, abstained))


class ConfusionMean(ItemMean):
    """Mean over classes of a statistic of the confusion table; its interval is over the images of each class."""

    unit = "fraction"
    value_range = (0.0, 1.0)
    reads = ("logits", "labels", "abstained")
    averaged_over: AveragedOver = "class"
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
        """Add a batch."""
        cells, counted = confusion_cells(logits, labels, self.num_classes, abstained)
        with torch.inference_mode():  # in place, wherever the state was made: it has K times K + 1 entries
            self.confusion.view(-1).scatter_add_(0, cells, counted)
        self.dropped = self.dropped + (len(labels) - counted.sum())

    def values(self) -> Tensor:
        """``(K,)`` float64, NaN where undefined."""
        return self.statistic(self.confusion)

    def _interval_of(self, values: Tensor, undefined: Tensor) -> tuple[Tensor, Tensor]:
        value = values.sum() / (~undefined).sum()
        return stratified_wilson_interval(value, self.confusion.diagonal(), self.confusion.sum(dim=1))


class BalancedAccuracy(ConfusionMean):
    """Mean recall over the classes that have an image (higher is better).

    Source: Schlinge et al. (2025), section 5: the mean over classes of ``tp / (tp + fn)``. An image on which the model
    abstains is a false negative of its class. Interval: Wilson, over the images of each class.

    Args:
        num_classes: K.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        logits: ``(B, K)`` float; images with a logit that is not finite are left out and counted.
        labels: ``(B,)`` int64 in ``[0, K)``.
        abstained: ``(B,)`` bool, True where the model makes no prediction; None if it always does.

    Raises:
        ValueError: if ``num_classes`` is below 1.

    Example:
        >>> metric = BalancedAccuracy(num_classes=2)
        >>> metric.update(torch.tensor([[2.0, 1.0], [0.0, 1.0], [3.0, 1.0]]), torch.tensor([0, 1, 1]))
        >>> metric.compute()  # (1 / 1 + 1 / 2) / 2
        tensor(0.7500, dtype=torch.float64)
    """

    name = "balanced_accuracy"

    @staticmethod
    def statistic(confusion: Tensor) -> Tensor:
        """Recall of every class, ``(K, K + 1)`` to ``(K,)``."""
        return balanced_accuracy(confusion)


class F1Score(ConfusionMean):
    """Mean F1 over the classes that are true or predicted anywhere (higher is better).

    Source: Schlinge et al. (2025), section 5: the mean over classes of ``2 tp / (2 tp + fp + fn)``. A class that is
    predicted but never true scores 0. An image on which the model abstains is a false negative of its class. Interval:
    Wilson, over the images of each class.

    Args:
        num_classes: K.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        logits: ``(B, K)`` float; images with a logit that is not finite are left out and counted.
        labels: ``(B,)`` int64 in ``[0, K)``.
        abstained: ``(B,)`` bool, True where the model makes no prediction; None if it always does.

    Raises:
        ValueError: if ``num_classes`` is below 1.

    Example:
        >>> metric = F1Score(num_classes=2)
        >>> metric.update(torch.tensor([[2.0, 1.0], [0.0, 1.0], [3.0, 1.0]]), torch.tensor([0, 1, 1]))
        >>> metric.compute()  # 2 / 3 for both classes
        tensor(0.6667, dtype=torch.float64)
    """

    name = "f1"

    @staticmethod
    def statistic(confusion: Tensor) -> Tensor:
        """F1 of every class, ``(K, K + 1)`` to ``(K,)``."""
        return f1_score(confusion)
