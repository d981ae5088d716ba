"""Share of images on which several classes have the largest logit."""

from __future__ import annotations

from torch import Tensor

from protometry.metrics.base import ImageMean
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.general.accuracy import zero_one
from protometry.metrics.primitives.checks import check_at_least, check_tensor


class Ties(ImageMean):
    """Share of images on which the two largest logits are equal: the order of classes decides (lower is better).

    Images on which the model abstains count as no tie.

    Example:
        >>> import torch
        >>> metric = Ties()
        >>> metric.update(torch.tensor([[2.0, 2.0, 0.0], [1.0, 3.0, 0.0]]))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    unit = "fraction"
    higher_is_better = False
    interval = "wilson"

    def update(self, logits: Tensor, abstained: Tensor | None = None) -> None:
        check_tensor("logits", logits, ("B", "K"), "float")
        check_at_least("logits.shape[1]", logits.shape[1], 1)
        if abstained is not None:
            check_tensor("abstained", abstained, (len(logits),), "bool")
        tied = (logits == logits.amax(dim=1, keepdim=True)).sum(dim=1) > 1
        self._accumulate(zero_one(tied, logits, abstained))


TIES = MetricEntry(
    "general/ties",
    Ties,
    Words(
        question="On how many images is there no largest logit, so that the order of classes decides?",
        name="Ties",
        formula="share of images whose two largest logits are equal",
        source="ours",
        misread="Accuracy takes the first of tied classes, and so do the metrics that look at the predicted class: "
        "where ties are many, as with a last layer of zeros, they measure the order of classes.",
    ),
    needs=("single_label",),
)
