"""Kernels: correctness of single-label classification, for each image and for each class."""

from __future__ import annotations

import torch
from torch import Tensor

from metrics.functional.multilabel_classification import label_f1_score
from metrics.functional.primitives.checks import check_tensor
from metrics.functional.primitives.regions import all_finite


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
