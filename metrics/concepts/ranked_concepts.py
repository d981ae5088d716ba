"""What the metrics of the most important concepts share: the ranking, and lifts over baselines on the same images."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, get_args

import torch
from torch import Tensor

from metrics.base import SummaryMetric
from metrics.concepts.global_importance import Order, Ranking, concept_importance
from metrics.facts import Facts
from metrics.primitives.checks import check_choice, check_tensor
from metrics.primitives.intervals import ratio_interval

_SUFFIXES = {"contribution": "", "weight": "_weight", "score": "_score"}
_SUFFIXES |= {"signed": "", "abs": "_abs", "positive_evidence": "_positive"}


def ranking_suffix(ranking: Ranking, order: Order) -> str:
    """What a key says of how concepts are ranked: nothing for signed contributions.

    Example:
        >>> ranking_suffix("contribution", "signed"), ranking_suffix("weight", "positive_evidence")
        ('', '_weight_positive')
    """
    return _SUFFIXES[ranking] + _SUFFIXES[order]


class RankedConcepts(SummaryMetric):
    """Base of the metrics of the k most important concepts of a decision, beside another base that averages.

    ``summary`` adds every baseline and the lift over it, ``lift_over_<baseline>``, with the bounds of its 95 %
    interval, ``..._low`` and ``..._high``, paired over images.

    Args:
        weight: ``(K, L)`` float head weights.
        k: number of concepts.
        ranking: ``"contribution"``, ``"weight"`` or ``"score"``.
        order: ``"signed"``, ``"abs"`` or ``"positive_evidence"``.
        candidates: ``(L,)`` bool, concepts that are ranked; None for all.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: if an argument differs from the above or there are fewer than k candidates.

    Attributes:
        compared: names of the baselines, in the order of the states.
    """

    unit = "fraction"
    value_range = (0.0, 1.0)
    higher_is_better = True
    compared: ClassVar[tuple[str, ...]]
    weight: Tensor
    candidates: Tensor | None
    lift_sums: Tensor
    lift_images: Tensor

    def __init__(
        self,
        weight: Tensor,
        k: int,
        ranking: Ranking,
        order: Order,
        candidates: Tensor | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_tensor("weight", weight, ("K", "L"), "float")
        check_choice("ranking", ranking, get_args(Ranking))
        check_choice("order", order, get_args(Order))
        count = weight.shape[1] if candidates is None else int(candidates.sum())
        if not 1 <= k <= count:
            raise ValueError(f"Expected argument `k` to be at least 1 and at most the {count} concepts, but got {k}.")
        self.k = k
        self.ranking: Ranking = ranking
        self.order: Order = order
        self.register_buffer("weight", weight.detach().clone(), persistent=False)
        self.register_buffer("candidates", None if candidates is None else candidates.clone(), persistent=False)
        # for every baseline the sums of `ratio_interval`, with a = value - baseline over the pairs of an image
        self.add_state("lift_sums", torch.zeros(len(self.compared), 5, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("lift_images", torch.zeros(len(self.compared), dtype=torch.int64), dist_reduce_fx="sum")

    def _importance(self, scores: Tensor, predictions: Tensor) -> Tensor:
        """``(B, L)`` float64, minus infinity for what is not ranked."""
        importance = concept_importance(scores.detach(), self.weight, predictions, self.ranking, self.order)
        broken = ~scores.isfinite().all(dim=1, keepdim=True)
        if self.candidates is not None:
            importance = importance.masked_fill(~self.candidates, -torch.inf)
        return importance.masked_fill(broken, torch.nan)

    def _compare(self, values: Tensor, baselines: Tensor) -> None:
        """Add ``(B, n)`` values and ``(J, B, n)`` baselines; a pair in which either is NaN is left out."""
        lift = values - baselines
        defined = ~lift.isnan()
        a, b = lift.masked_fill(~defined, 0).sum(dim=2), defined.sum(dim=2).double()
        self.lift_sums = self.lift_sums + torch.stack([a, b, a * a, b * b, a * b], dim=2).sum(dim=1)
        self.lift_images = self.lift_images + (b > 0).sum(dim=1)

    @abstractmethod
    def baselines(self) -> dict[str, Tensor]:
        """What every baseline reaches on the images seen, float64 scalars; NaN without any.

        Computed from the states as they stand: enter ``sync_context()`` for those of all processes.
        """

    def summary(self) -> dict[str, float]:
        """The value with its interval, and every baseline with the lift over it.

        Returns:
            What :meth:`SummaryMetric.summary` returns, and for every baseline ``<baseline>``, ``lift_over_<baseline>``,
            ``lift_over_<baseline>_low`` and ``lift_over_<baseline>_high``; NaN for what is undefined.
        """
        summary = super().summary()
        with self.sync_context(dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync), torch.no_grad():
            for row, (name, value) in enumerate(self.baselines().items()):
                sums, images = self.lift_sums[row], self.lift_images[row]
                low, high = ratio_interval(sums, images, value_range=(-1.0, 1.0))
                lift = {"": sums[0] / sums[1], "_low": low, "_high": high}
                summary[name] = float(value)
                summary |= {f"lift_over_{name}{end}": float(bound) for end, bound in lift.items()}
        return summary


NEEDS = ("weight", "single_label", "training", "named_units")


def named_weight(facts: Facts) -> Tensor:
    """``(K, M)`` float head weights of the units that stand for a concept."""
    assert facts.weight is not None
    return facts.weight.detach()[:, facts.named].float()
