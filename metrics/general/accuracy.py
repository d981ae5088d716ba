"""Share of images whose class, or whose whole set of labels, is right."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from protometry.metrics.base import ImageMean
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_labels, check_tensor
from protometry.metrics.primitives.regions import all_finite
from protometry.metrics.primitives.truth import check_truth


def check_single_label(logits: Tensor, labels: Tensor, abstained: Tensor | None, name: str = "logits") -> None:
    """Refuse what is not ``(B, K)`` float logits with ``(B,)`` int64 labels in ``[0, K)``, with a ``ValueError``."""
    check_tensor(name, logits, ("B", "K"), "float")
    check_labels(labels, *logits.shape)
    if abstained is not None:
        check_tensor("abstained", abstained, (len(logits),), "bool")


def check_label_sets(logits: Tensor, labels: Tensor) -> None:
    """Refuse what is not ``(B, K)`` float logits with labels as for :func:`subset_accuracy`, with a ``ValueError``."""
    check_tensor("logits", logits, ("B", "K"), "float")
    check_truth("labels", labels, tuple(logits.shape))


def own_logits(logits: Tensor, labels: Tensor) -> Tensor:
    """The logit of the true class, ``(B,)``."""
    return logits.gather(1, labels[:, None]).squeeze(1)


def zero_one(hits: Tensor, logits: Tensor, abstained: Tensor | None = None) -> Tensor:
    """``(B,)`` float64, 0 also where the model abstained; NaN where a logit is not finite."""
    hits = hits if abstained is None else hits & ~abstained
    return hits.double().masked_fill(~all_finite(logits, dim=1), torch.nan)


def accuracy(logits: Tensor, labels: Tensor, abstained: Tensor | None = None) -> Tensor:
    """Whether the true class has the largest logit.

    Source: Schlinge et al. (2025), section 5: ``1[argmax o(x) = y]`` with o(x) = ``logits`` and y = ``labels``. Plain
    micro accuracy, ties to the lowest class.

    Args:
        logits: ``(B, K)`` float.
        labels: ``(B,)`` int64 in ``[0, K)``.
        abstained: ``(B,)`` bool, the model decided nothing, which is wrong; by default it always decides.

    Returns:
        ``(B,)`` float64, 1 or 0; NaN where a logit is not finite. Higher is better.

    Example:
        >>> accuracy(torch.tensor([[2.0, 2.0, 0.0], [1.0, 3.0, 0.0]]), torch.tensor([1, 1]))
        tensor([0., 1.], dtype=torch.float64)
    """
    check_single_label(logits, labels, abstained)
    best, predicted = logits.max(dim=1)
    return zero_one((own_logits(logits, labels) == best) & (predicted == labels), logits, abstained)


def subset_accuracy(logits: Tensor, labels: Tensor, threshold: float = 0.0) -> Tensor:
    """Whether the predicted label set is exactly the true one: ``1[{j : o_j(x) > threshold} = {j : y_j}]``.

    Args:
        logits: ``(B, K)`` float, o(x).
        labels: ``(B, K)`` bool, y, or float with NaN where unknown: only labels that are known have to be right.
        threshold: on logits, chosen on the validation split.

    Returns:
        ``(B,)`` float64, 1 or 0; NaN where a logit is not finite or no label is known. Higher is better.

    Example:
        >>> subset_accuracy(torch.tensor([[1.0, -1.0, 2.0]]), torch.tensor([[True, False, True]]))
        tensor([1.], dtype=torch.float64)
    """
    check_label_sets(logits, labels)
    unknown = labels.isnan()
    right = (((logits > threshold) == labels) | unknown).all(dim=1)
    return zero_one(right, logits).masked_fill(unknown.all(dim=1), torch.nan)


class Accuracy(ImageMean):
    """Share of images whose true class has the largest logit (higher is better)."""

    unit = "fraction"
    higher_is_better = True
    interval = "wilson"

    def update(self, logits: Tensor, labels: Tensor, abstained: Tensor | None = None) -> None:
        self._accumulate(accuracy(logits, labels, abstained))


class SubsetAccuracy(ImageMean):
    """Share of images whose predicted label set is exactly the true one (higher is better). Interval: Wilson.

    ``labels`` are as for :func:`subset_accuracy`; an image without a known label is left out and counted.
    """

    unit = "fraction"
    higher_is_better = True
    interval = "wilson"

    def __init__(self, threshold: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.threshold = threshold

    def update(self, logits: Tensor, labels: Tensor) -> None:
        self._accumulate(subset_accuracy(logits, labels, self.threshold))


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
        finding="The model classifies {value} of the images correctly.",
    ),
    lambda facts: SubsetAccuracy(facts.threshold) if facts.multi_label else Accuracy(),
)
