"""Units that rely on a planted shortcut: those that a stamp lifts out of the range of their other scores."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from protometry.metrics.base import ItemMean
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_tensor
from protometry.metrics.primitives.intervals import mean_interval

DEVIATIONS = 2  # standard deviations, beyond which about 2 % of normal scores lie
MOST_RAISED = 3  # units that a result names


class ShortcutUnits(ItemMean):
    """Share of the active units that rely on a stamp (lower is better).

    Source: ours. A unit relies on it if its scores with the stamp are on average more than two standard deviations of
    its scores with the plain patch above those: if the 95 % interval of the mean difference, with Bonferroni's
    correction for the number of active units, lies above. A rise alone is no criterion, since anything in a corner
    that other images leave empty raises most units a little.

    ``summary`` adds ``most_raised``, the numbers of the three active units with the largest mean difference in standard
    deviations, in this order.

    Args:
        active: ``(U,)`` bool.

    Inputs:
        stamped_scores: ``(B, U)`` float, with the stamp.
        plain_scores: the same with a plain patch in its place.

    Example:
        >>> metric = ShortcutUnits(torch.tensor([True, True]))
        >>> plain = torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.0, 0.0], [1.0, 1.0]])
        >>> metric.update(plain + torch.tensor([5.0, 0.1]), plain)
        >>> metric.compute(), metric.summary()["most_raised"]
        (tensor(0.5000, dtype=torch.float64), [0, 1])
    """

    unit = "fraction"
    undefined = "it needs two images with finite scores"
    averaged_over = "unit"
    higher_is_better = False
    interval = "wilson"
    active: Tensor
    sums: Tensor
    counts: Tensor

    def __init__(self, active: Tensor, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_tensor("active", active, ("U",), "bool")
        self.register_buffer("active", active.clone(), persistent=False)
        sums = torch.zeros(4, len(active), dtype=torch.float64)  # of the rise and the plain score, and of their squares
        self.add_state("sums", sums, dist_reduce_fx="sum")
        self.add_state("counts", torch.zeros(len(active), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, stamped_scores: Tensor, plain_scores: Tensor) -> None:
        check_tensor("stamped_scores", stamped_scores, ("B", len(self.active)), "float")
        check_tensor("plain_scores", plain_scores, tuple(stamped_scores.shape), "float")
        plain = plain_scores.detach().double()
        rise = stamped_scores.detach().double() - plain
        defined = rise.isfinite()
        values = torch.stack([rise, plain, rise.square(), plain.square()])
        self.sums = self.sums + values.masked_fill(~defined, 0).sum(dim=1)
        self.counts = self.counts + defined.sum(dim=0)

    def values(self) -> Tensor:
        """``(U,)`` float64, 1 for a unit that relies on the stamp; NaN for inactive units and below two images."""
        confidence = 1 - 0.05 / max(1, int(self.active.sum()))
        low, _ = mean_interval(self.sums[0], self.sums[2], self.counts, confidence)
        mean, spread = self._rises()
        low = torch.where(low.isnan(), mean, low)  # of equal differences
        return (low > DEVIATIONS * spread).double().masked_fill(~self.active | (self.counts < 2), torch.nan)

    def _rises(self) -> tuple[Tensor, Tensor]:
        """``(U,)`` mean difference and standard deviation of the scores with the plain patch."""
        mean, plain_mean, _, plain_square = self.sums / self.counts
        variance = (plain_square - plain_mean.square()) * self.counts / (self.counts - 1)
        return mean, variance.clamp(min=0).sqrt()

    def _additions(self) -> dict[str, Any]:
        mean, spread = self._rises()
        sizes = (mean / spread).masked_fill(~self.active | (mean <= 0), -torch.inf)  # infinite without a spread
        order = sizes.argsort(descending=True, stable=True)[:MOST_RAISED]
        return {"most_raised": [int(unit) for unit in order if sizes[unit] > 0]}


SHORTCUT_UNITS = MetricEntry(
    "sanity/shortcut_units",
    ShortcutUnits,
    Words(
        question="How many units rely on the planted shortcut?",
        name="Units of the shortcut",
        formula="share of the active units whose mean score with the stamp exceeds that with a plain patch in its "
        "place by more than 2 standard deviations of the scores with the plain patch, by the lower end of a 95 % "
        "interval, Bonferroni-corrected over units",
        source="ours",
        misread="A unit that sees the stamp may have no weight for its class, and units below 2 standard deviations "
        "may carry the shortcut together: read `sanity/shortcut_success`, too. `most_raised` names three units, "
        "whether or not they count.",
        finding="{value} of the units rely on the planted stamp.",
    ),
    lambda facts: ShortcutUnits(facts.active),
    needs=("stamp", "units"),
    view="shortcut",
)
