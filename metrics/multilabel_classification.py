"""Accuracy of multilabel classification: of the predicted label sets and of each label."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metrics.base import AveragedOver, ImageMean, ItemMean
from metrics.functional.multilabel_classification import label_counts, label_f1_score, subset_accuracy
from metrics.functional.primitives.checks import check_at_least


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

    name = "accuracy"
    unit = "fraction"
    value_range = (0.0, 1.0)
    reads = ("logits", "labels")
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

    name = "f1"
    unit = "fraction"
    value_range = (0.0, 1.0)
    reads = ("logits", "labels")
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
