"""How many parts of an object cannot be seen."""

from __future__ import annotations

from torch import Tensor

from protometry.metrics.base import ImageMean
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_tensor


class HiddenParts(ImageMean):
    """Mean number of parts that were drawn but have no visible pixel (no direction: a fact of the images).

    Example:
        >>> import torch
        >>> metric = HiddenParts()
        >>> metric.update(torch.tensor([[True, True, False]]), torch.tensor([[True, False, False]]))
        >>> metric.compute()
        tensor(1., dtype=torch.float64)
    """

    unit = "count"
    higher_is_better = None

    def update(self, present: Tensor, visible: Tensor) -> None:
        check_tensor("present", present, ("B", "N"), "bool")
        check_tensor("visible", visible, tuple(present.shape), "bool")
        self._accumulate((present & ~visible).sum(dim=1).double())


HIDDEN_PARTS = MetricEntry(
    "funnybirds/hidden_parts",
    HiddenParts,
    Words(
        question="How many parts of the birds cannot be seen?",
        name="Hidden parts",
        formula="mean number of parts that were drawn and have no visible pixel",
        source="none",
        misread="A property of the images: such a part has an importance of 0, and removing it changes nothing.",
    ),
    needs=("class_parts", "single_label", "interventions", "label_map", "class_maps"),
    view="part_removal",
)
