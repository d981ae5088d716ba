"""Share of images on which the model makes no prediction."""

from __future__ import annotations

from torch import Tensor

from protometry.metrics.base import ImageMean
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_tensor


class Abstention(ImageMean):
    """Share of images on which the model makes no prediction (lower is better).

    Source: Nauta et al. (2023), whose PIP-Net abstains where it finds no prototype.

    Example:
        >>> import torch
        >>> metric = Abstention()
        >>> metric.update(torch.tensor([True, False]))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    unit = "fraction"
    higher_is_better = False
    interval = "wilson"

    def update(self, abstained: Tensor) -> None:
        check_tensor("abstained", abstained, ("B",), "bool")
        self._accumulate(abstained.double())


ABSTENTION = MetricEntry(
    "general/abstention",
    Abstention,
    Words(
        question="On how many images does the model decide nothing?",
        name="Abstention",
        formula="share of images with equal logits for all classes",
        source="[N23]",
        misread="Accuracy counts such images as wrong; a low accuracy may mean silence, not error.",
    ),
    needs=("abstention",),
)
