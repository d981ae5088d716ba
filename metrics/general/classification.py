"""Accuracy of single-label classification, micro and per class, and the share of images without a prediction."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from metrics.base import AveragedOver, ImageMean, ItemMean
from metrics.entry import MetricEntry, Words
from metrics.general.multilabel_classification import LabelF1Score, SubsetAccuracy, label_f1_score
from metrics.primitives.checks import check_at_least, check_tensor
from metrics.primitives.intervals import stratified_wilson_interval
from metrics.primitives.regions import all_finite


def _check_inputs(logits: Tensor, labels: Tensor) -> None:
    check_tensor("logits", logits, ("B", "K"), "float")
    check_tensor("labels", labels, (logits.shape[0],), "int64")


def _zero_one(hits: Tensor, logits: Tensor, abstained: Tensor | None = None) -> Tensor:
    hits = hits if abstained is None else hits & ~abstained
    return hits.double().masked_fill(~all_finite(logits, dim=1), torch.nan)


def _own_logits(logits: Tensor, labels: Tensor) -> Tensor:
    """The logit of the true class, ``(B,)``; refuses a label out of range."""
    return logits.gather(1, labels[:, None]).squeeze(1)


def accuracy(logits: Tensor, labels: Tensor, abstained: Tensor | None = None) -> Tensor:
    """Whether the largest logit is that of the true class.

    Source: Schlinge et al. (2025), section 5. Plain micro accuracy, ties to the lowest class.

    Args:
        logits: ``(B, K)`` float.
        labels: ``(B,)`` int64 in ``[0, K)``.
        abstained: ``(B,)`` bool, the model decided nothing, which is wrong; by default it always decides.

    Returns:
        ``(B,)`` float64, 1 or 0; NaN where a logit is not finite. Higher is better.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> accuracy(torch.tensor([[2.0, 2.0, 0.0], [1.0, 3.0, 0.0]]), torch.tensor([1, 1]))
        tensor([0., 1.], dtype=torch.float64)
    """
    _check_inputs(logits, labels)
    best, predicted = logits.max(dim=1)
    return _zero_one((_own_logits(logits, labels) == best) & (predicted == labels), logits, abstained)


def top_k_accuracy(logits: Tensor, labels: Tensor, k: int = 3, abstained: Tensor | None = None) -> Tensor:
    """Whether the true class is among the k best.

    Source: Schlinge et al. (2025), section 5. Fewer than k classes are better, where better is a larger logit or an
    equal one at a lower index; constant logits therefore do not score 1.

    Args:
        logits: ``(B, K)`` float with K > k.
        labels: ``(B,)`` int64 in ``[0, K)``.
        k: number of classes that count as a hit, at least 1.
        abstained: ``(B,)`` bool, the model decided nothing, which is wrong; by default it always decides.

    Returns:
        ``(B,)`` float64, 1 or 0; NaN where a logit is not finite. Higher is better.

    Raises:
        ValueError: if ``k`` is not in ``[1, K)`` or a shape or dtype differs from the above.

    Example:
        >>> top_k_accuracy(torch.tensor([[2.0, 2.0, 0.0], [2.0, 2.0, 0.0]]), torch.tensor([1, 2]), k=2)
        tensor([1., 0.], dtype=torch.float64)
    """
    _check_inputs(logits, labels)
    if not 1 <= k < logits.shape[1]:
        raise ValueError(
            f"Expected argument `k` to be at least 1 and below the number of classes {logits.shape[1]}, but got {k}."
        )
    own, index = _own_logits(logits, labels)[:, None], torch.arange(logits.shape[1], device=logits.device)
    better = (logits > own) | ((logits == own) & (index < labels[:, None]))
    return _zero_one(better.sum(dim=1) < k, logits, abstained)


def confusion_matrix(logits: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Counts of (truth, prediction) pairs.

    Args:
        logits: ``(B, K)`` float; rows that are not finite are left out.
        labels: ``(B,)`` int64 in ``[0, K)``.
        num_classes: K.

    Returns:
        ``(K, K)`` int64, rows are the truth.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> confusion_matrix(torch.tensor([[2.0, 1.0], [0.0, 1.0], [3.0, 1.0]]), torch.tensor([0, 1, 1]), 2)
        tensor([[1, 0],
                [1, 1]])
    """
    return confusion_table(logits, labels, num_classes, None)[:, :num_classes]


def confusion_table(logits: Tensor, labels: Tensor, num_classes: int, abstained: Tensor | None) -> Tensor:
    """Counts ``(K, K + 1)``; the last column is that of no prediction."""
    counts = torch.zeros(num_classes * (num_classes + 1), dtype=torch.int64, device=logits.device)
    cells, counted = confusion_cells(logits, labels, num_classes, abstained)
    return counts.scatter_add_(0, cells, counted).view(num_classes, num_classes + 1)


def confusion_cells(
    logits: Tensor, labels: Tensor, num_classes: int, abstained: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Cell of each image in the flat :func:`confusion_table` and what it adds there, 0 where a logit is not finite."""
    _check_inputs(logits, labels)
    if logits.shape[1] != num_classes:
        raise ValueError(
            f"Expected argument `logits` to have num_classes = {num_classes} columns, but got {logits.shape[1]}."
        )
    columns = num_classes + 1
    predicted = logits.max(dim=1).indices  # several times faster than `argmax` on a CPU
    cells = labels * columns + (predicted if abstained is None else predicted.masked_fill(abstained, num_classes))
    return cells, all_finite(logits, dim=1).long()


def f1_score(confusion: Tensor) -> Tensor:
    """F1 of every class.

    Source: Schlinge et al. (2025), section 5: ``2 tp / (2 tp + fp + fn)``. A class that is predicted but
    never true scores 0.

    Args:
        confusion: ``(K, K)`` int64 counts, rows are the truth; a further column counts images without a prediction.

    Returns:
        ``(K,)`` float64 in [0, 1], NaN where a class is neither true nor predicted. Higher is better.

    Example:
        >>> f1_score(torch.tensor([[1, 0, 0], [1, 1, 0], [0, 0, 0]]))
        tensor([0.6667, 0.6667,    nan], dtype=torch.float64)
    """
    hits = confusion.diagonal()
    predicted = confusion[:, : len(confusion)].sum(dim=0)
    return label_f1_score(hits, predicted - hits, confusion.sum(dim=1) - hits)


def balanced_accuracy(confusion: Tensor) -> Tensor:
    """Recall of every class.

    Source: Schlinge et al. (2025), section 5: ``tp / (tp + fn)``.

    Args:
        confusion: ``(K, K)`` int64 counts, rows are the truth; a further column counts images without a prediction.

    Returns:
        ``(K,)`` float64 in [0, 1], NaN where a class has no sample. Higher is better.

    Example:
        >>> balanced_accuracy(torch.tensor([[1, 0, 0], [1, 1, 0], [0, 0, 0]]))
        tensor([1.0000, 0.5000,    nan], dtype=torch.float64)
    """
    return confusion.diagonal().double() / confusion.sum(dim=1)


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

    unit = "fraction"
    value_range = (0.0, 1.0)
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

    unit = "fraction"
    value_range = (0.0, 1.0)
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
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    unit = "fraction"
    value_range = (0.0, 1.0)
    higher_is_better = True
    interval = "wilson"

    def __init__(self, k: int = 3, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_at_least("k", k, 1)
        self.k = k

    def update(self, logits: Tensor, labels: Tensor, abstained: Tensor | None = None) -> None:
        """Add a batch."""
        self._accumulate(top_k_accuracy(logits, labels, self.k, abstained))


class ConfusionMean(ItemMean):
    """Mean over classes of a statistic of the confusion table; its interval is over the images of each class."""

    unit = "fraction"
    value_range = (0.0, 1.0)
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

    @staticmethod
    def statistic(confusion: Tensor) -> Tensor:
        """F1 of every class, ``(K, K + 1)`` to ``(K,)``."""
        return f1_score(confusion)


ACCURACY = MetricEntry(
    "general/accuracy",
    Accuracy,
    Words(
        question="How many images get their right class?",
        name="Accuracy",
        formula="share of images with argmax o(x) = y; multilabel data: whose label set {j : o_j > threshold} is exact",
        source="[S25] 5",
        misread="The published tables of S25 print the mean recall under this name, which is `balanced_accuracy`. For "
        "multilabel data a single wrong label makes the image wrong.",
    ),
    lambda facts: SubsetAccuracy(facts.threshold) if facts.multi_label else Accuracy(),
)


ABSTENTION = MetricEntry(
    "general/abstention",
    Abstention,
    Words(
        question="On how many images does the model decide nothing?",
        name="Abstention",
        formula="share of images of which all logits are equal",
        source="[N23]",
        misread="Accuracy counts such images as wrong; a low accuracy may be silence, not error.",
    ),
    needs=("abstention",),
)


TOP3_ACCURACY = MetricEntry(
    "general/top3_accuracy",
    TopKAccuracy,
    Words(
        question="How often is the right class among the three likeliest?",
        name="Top-3 accuracy",
        formula="share of images with fewer than 3 classes above the true one",
        source="[S25] 5",
        misread="With few classes chance alone is high: 3 / K.",
    ),
    needs=("single_label", "num_classes"),
)


BALANCED_ACCURACY = MetricEntry(
    "general/balanced_accuracy",
    BalancedAccuracy,
    Words(
        question="The same, with every class counting equally.",
        name="Balanced accuracy",
        formula="mean over classes of tp / (tp + fn)",
        source="[S25] 5",
        misread="A class of three images weighs as much as one of three hundred; its luck moves the number.",
    ),
    lambda facts: BalancedAccuracy(facts.num_classes),
    needs=("single_label",),
)


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
