"""Share of a decision carried by the units that an explanation shows."""

from __future__ import annotations

import torch
from torch import Tensor

from protometry.metrics.base import ImageMean
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_tensor


def decision_share(contributions: Tensor, shown: Tensor) -> Tensor:
    """Share of the contributions to a decision that is shown.

    Source: ours, ``sum of |c_u| over the shown u / sum of |c_u| over all u``, in float64.

    Args:
        contributions: ``(B, E)`` float, c, what each unit contributes to the decision.
        shown: ``(B, E)`` bool, what an explanation shows.

    Returns:
        ``(B,)`` float64 in [0, 1], higher is better; NaN where nothing contributes or a contribution is not finite.

    Example:
        >>> decision_share(torch.tensor([[3.0, -2.0, 1.0, 0.0]]), torch.tensor([[True, True, False, False]]))
        tensor([0.8333], dtype=torch.float64)
    """
    check_tensor("contributions", contributions, ("B", "E"), "float")
    check_tensor("shown", shown, tuple(contributions.shape), "bool")
    sizes = contributions.double().abs()
    total = sizes.sum(dim=1)
    share = sizes.masked_fill(~shown, 0).sum(dim=1) / total
    return share.masked_fill(~total.isfinite() | (total == 0), torch.nan)


class DecisionShare(ImageMean):
    """Mean share of a decision that an explanation shows (higher is better)."""

    unit = "fraction"
    higher_is_better = True

    def update(self, contributions: Tensor, shown: Tensor) -> None:
        self._accumulate(decision_share(contributions, shown))


DECISION_SHARE = MetricEntry(
    "compactness/decision_share",
    DecisionShare,
    Words(
        question="How much of a decision is carried by the units that an explanation shows?",
        name="Decision share",
        formula="mean of Σ_(u shown) abs(c_u − c̄_u) / Σ_u abs(c_u − c̄_u); c_u contributes to the predicted class, c̄_u "
        "is the mean over classes, and the k largest are shown. Multilabel: c̄_u = 0. BagNet: u are cells. ProtoTree: "
        "share of the probability of the class that the path shown gives, by the likelier branch at every node",
        source="ours",
        misread="A model of few units has a large share without being understood. Bias and residual are not units and "
        "are left out. PIPNet's c_u add to o, and its softmax reads log(1 + o²), which does change with the mean over "
        "classes. The path through a ProtoTree has up to as many units as the tree has levels, whatever k is. An "
        "explanation adds to the k largest those that look at the same places.",
        finding="The units that an explanation shows carry {value} of a decision.",
    ),
    needs=("decision",),
)
