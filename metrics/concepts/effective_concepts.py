"""How accurate a linear head is that may read only a few units for each class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from protometry.metrics.base import ImageMean
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.facts import Facts
from protometry.metrics.general.accuracy import accuracy
from protometry.metrics.needs import unless
from protometry.metrics.primitives.checks import check_range, check_tensor

SIZES = (5, 10, 15, 20, 25, 30)  # numbers of effective concepts of Srivastava et al. (2024)


class _SparseAccuracy(ImageMean):
    """Base of both: the accuracy of one head for each of ``SIZES``."""

    unit = "fraction"
    higher_is_better = True
    undefined = "no score varies over the training images"

    def _right(self, sparse_logits: Tensor, labels: Tensor) -> Tensor:
        """``(B, T)`` float64, 1 or 0; NaN where a logit is not finite."""
        check_tensor("sparse_logits", sparse_logits, ("B", len(SIZES), "K"), "float")
        check_tensor("labels", labels, (len(sparse_logits),), "int64")
        check_range("labels", labels, 0, sparse_logits.shape[2] - 1)
        repeated = labels[:, None].expand(-1, len(SIZES)).flatten()
        return accuracy(sparse_logits.flatten(0, 1), repeated).view(-1, len(SIZES))


class AccuracyAtNEC(_SparseAccuracy):
    """Accuracy of a sparse head at a number of effective concepts (NEC, higher is better).

    Source: Srivastava et al. (2024), ANEC: the NEC of a head is the mean over classes of its weights that are not
    0. ``sparse_logits`` are those of the heads that
    :func:`~protometry.lightning_modules.heads.sparse_path.heads_with_weights` solves on the scores of training images.
    The interval does not include how the heads would vary with these.

    Args:
        size: one of ``SIZES``.

    Example:
        >>> metric = AccuracyAtNEC(5)
        >>> metric.update(torch.eye(2).repeat(1, 6).view(2, 6, 2), torch.tensor([0, 0]))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    interval = "wilson"

    def __init__(self, size: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if size not in SIZES:
            raise ValueError(f"Expected argument `size` to be one of {SIZES}, but got {size}.")
        self.index = SIZES.index(size)

    def update(self, sparse_logits: Tensor, labels: Tensor) -> None:
        self._accumulate(self._right(sparse_logits, labels)[:, self.index])


class MeanAccuracyAtNEC(_SparseAccuracy):
    """Accuracy of sparse heads, averaged over numbers of effective concepts (NEC, higher is better).

    Source: Srivastava et al. (2024), ANEC-avg, the average over ``SIZES``, see :class:`AccuracyAtNEC`, also for the
    interval. ``summary`` adds the ``curve``, the accuracy at each.
    """

    curve_sum: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("curve_sum", torch.zeros(len(SIZES), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, sparse_logits: Tensor, labels: Tensor) -> None:
        right = self._right(sparse_logits, labels)
        self._accumulate(right.mean(dim=1))
        self.curve_sum = self.curve_sum + right.masked_fill(self.image_values.isnan()[:, None], 0).sum(dim=0)

    def _additions(self) -> dict[str, Any]:
        return {"curve": (self.curve_sum / self.image_count).tolist()}


def why_no_heads(facts: Facts) -> str | None:
    """Why no sparse head can read the units; None if one can."""
    return unless(facts.units.kind != "class", "the units of the model are classes")


_NEEDS = ("single_label", "training", "units", "sparse_heads")
_MISREAD = "It is not the model's own head, whose accuracy is `general/accuracy`. "


def _entries() -> Iterator[MetricEntry]:
    yield MetricEntry(
        f"concepts/anec@{SIZES[0]}",
        AccuracyAtNEC,
        Words(
            question="How good is a head that reads five units per class?",
            name=f"Accuracy at NEC {SIZES[0]}",
            formula="share of images with argmax o(x) = y, o = a linear head with five weights per class on average, "
            "solved on training images",
            source="[V24]",
            misread=_MISREAD + "A class may have more than five.",
        ),
        lambda facts: AccuracyAtNEC(SIZES[0]),
        needs=_NEEDS,
        view="sparse_heads",
    )
    yield MetricEntry(
        "concepts/anec_avg",
        MeanAccuracyAtNEC,
        Words(
            question="How good are heads that read few units per class?",
            name="Average accuracy at NEC",
            formula=f"mean of the accuracies at NEC {', '.join(map(str, SIZES))}",
            source="[V24]",
            misread=_MISREAD + "With fewer units than the NEC, the head reads all that its penalty leaves.",
        ),
        needs=_NEEDS,
        view="sparse_heads",
    )


EFFECTIVE_CONCEPTS = tuple(_entries())
