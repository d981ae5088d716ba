"""Kernels: correctness of multilabel classification, for each image and for each label."""

from __future__ import annotations

import torch
from torch import Tensor

from metrics.functional.primitives.checks import check_tensor


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
