"""Accuracy of multilabel classification: of the predicted label sets and of each label."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metrics.base import AveragedOver, ImageMean, ItemMean
from metrics.primitives.checks import check_at_least, check_tensor


def _check_inputs(logits: Tensor, labels: Tensor) -> None:
    check_tensor("logits", logits, ("B", "K"), "float")
    check_tensor("labels", labels, tuple(logits.shape), "bool")


def subset_accuracy(logits: Tensor, labels: Tensor, threshold: float = 0.0) -> Tensor:
    """Whether the predicted label set is exactly the true one.

    The predicted set holds the labels whose logit exceeds ``threshold``, which is chosen on the validation split.

    Args:
        logits: ``(B, K)`` float.
        labels: ``(B, K)`` bool.
        threshold: on logits.

    Returns:
        ``(B,)`` float64, 1 or 0; NaN where a logit is not finite. Higher is better.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> subset_accuracy(torch.tensor([[1.0, -1.0, 2.0]]), torch.tensor([[True, False, True]]))
        tensor([1.], dtype=torch.float64)
    """
    _check_inputs(logits, labels)
    exact = ((logits > threshold) == labels).all(dim=1)
    return exact.double().masked_fill(~logits.isfinite().all(dim=1), torch.nan)


def label_counts(logits: Tensor, labels: Tensor, threshold: float = 0.0) -> Tensor:
    """True positives, false positives and false negatives of every label, ``(3, K)`` int64."""
    """True positives, false positives and false negatives of every label, ``(3, K)`` int64."""
    _check_inputs(logits, labels)
    predicted, counted = logits > threshold, logits.isfinite().all(dim=1, keepdim=True)
    outcomes = torch.stack([predicted & labels, predicted & ~labels, ~predicted & labels])
    return (outcomes & counted).sum(dim=1)


def label_f1_score(true_positive: Tensor, false_positive: Tensor, false_negative: Tensor) -> Tensor:
    """F1 of every label of a multi-label task.

    ``2 tp / (2 tp + fp + fn)``.

    Args:
        true_positive: ``(K,)`` int64 counts.
        false_positive: ``(K,)`` int64 counts.
        false_negative: ``(K,)`` int64 counts.

    Returns:
        ``(K,)`` float64 in [0, 1], NaN where a label is neither true nor predicted. Higher is better.

    Example:
        >>> label_f1_score(torch.tensor([2, 0]), torch.tensor([1, 0]), torch.tensor([1, 0]))
        tensor([0.6667,    nan], dtype=torch.float64)
    """
    doubled = 2 * true_positive.double()
    return doubled / (doubled + false_positive + false_negative)


class SubsetAccuracy(ImageMean):
    """Share of images whose predicted label set is exactly the true one (higher is better).

    Source: the exact match of multilabel classification: ``1[{j : o_j(x) > threshold} = {j : y_j}]`` with o(x) =
    ``logits`` and y = ``labels``. Interval: Wilson.

    Args:
        threshold: on logits, chosen on the validation split.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        logits: ``(B, K)`` float; images with a logit that is not finite are undefined.
        labels: ``(B, K)`` bool.

    Example:
        >>> metric = SubsetAccuracy()
        >>> metric.update(torch.tensor([[1.0, -1.0], [1.0, 1.0]]), torch.tensor([[True, False], [True, False]]))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    unit = "fraction"
    value_range = (0.0, 1.0)
    higher_is_better = True
    interval = "wilson"

    def __init__(self, threshold: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.threshold = threshold

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add a batch."""
        self._accumulate(subset_accuracy(logits, labels, self.threshold))


class LabelF1Score(ItemMean):
    """Mean F1 over the labels that are true or predicted anywhere (higher is better).

    Source: label-wise macro F1, the mean over labels of ``2 tp / (2 tp + fp + fn)``; a label is predicted where its
    logit exceeds ``threshold``. Interval: over labels.

    Args:
        num_classes: K, the number of labels.
        threshold: on logits, chosen on the validation split.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        logits: ``(B, K)`` float; images with a logit that is not finite are left out and counted.
        labels: ``(B, K)`` bool.

    Raises:
        ValueError: if ``num_classes`` is below 1.

    Example:
        >>> metric = LabelF1Score(num_classes=2)
        >>> metric.update(torch.tensor([[1.0, -1.0], [1.0, 1.0]]), torch.tensor([[True, False], [True, False]]))
        >>> metric.compute()  # 1 for the first label, 0 for the second
        tensor(0.5000, dtype=torch.float64)
    """

    unit = "fraction"
    value_range = (0.0, 1.0)
    averaged_over: AveragedOver = "label"
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
        """Add a batch."""
        if logits.shape[1:] != (self.num_classes,):
            raise ValueError(
                f"Expected argument `logits` to have num_classes = {self.num_classes} columns, "
                f"but got shape {tuple(logits.shape)}."
            )
        self.counts = self.counts + label_counts(logits, labels, self.threshold)
        self.dropped = self.dropped + (~logits.isfinite().all(dim=1)).sum()

    def values(self) -> Tensor:
        """``(K,)`` float64, NaN where undefined."""
        return label_f1_score(*self.counts)
