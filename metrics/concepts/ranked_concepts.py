"""The concepts that decide on an image, and what the metrics of the k most important ones share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from protometry.metrics.base import SummaryMetric
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.facts import Facts
from protometry.metrics.primitives.checks import check_choice, check_labels, check_tensor
from protometry.metrics.primitives.intervals import lift_interval, lift_over

Ranking = Literal["contribution", "weight", "score"]
Order = Literal["signed", "abs", "positive_evidence"]


def concept_importance(
    scores: Tensor,
    weight: Tensor,
    predictions: Tensor,
    ranking: Ranking = "contribution",
    order: Order = "signed",
) -> Tensor:
    """Importance of every concept to the decision on every image.

    Source: Aysel et al. (2025), section 3.3: ``θ_kj u_j`` with u = ``scores``, θ = ``weight`` and the predicted class
    k; for comparison θ or u alone. They rank by its magnitude, here ``order="abs"``.

    Args:
        scores: ``(B, L)`` float concept values.
        weight: ``(K, L)`` float head weights.
        predictions: ``(B,)`` int64 predicted class.
        ranking: ``"contribution"`` θu, ``"weight"`` θ or ``"score"`` u.
        order: ``"signed"`` as it stands; ``"abs"`` its magnitude, by which a strong "not white" ranks with a strong
            "white"; ``"positive_evidence"`` as it stands, of concepts with θ > 0 and u > 0 alone.

    Returns:
        ``(B, L)`` float64, larger is more important; minus infinity for a concept that is not eligible.

    Example:
        >>> scores, weight = torch.tensor([[-0.5, 0.25]]), torch.tensor([[-1.0, 1.0]])
        >>> concept_importance(scores, weight, torch.tensor([0]))
        tensor([[0.5000, 0.2500]], dtype=torch.float64)
        >>> concept_importance(scores, weight, torch.tensor([0]), order="positive_evidence")
        tensor([[  -inf, 0.2500]], dtype=torch.float64)
    """
    check_tensor("scores", scores, ("B", "L"), "float")
    check_tensor("weight", weight, ("K", scores.shape[1]), "float")
    check_labels(predictions, len(scores), len(weight), "predictions")
    check_choice("ranking", ranking, get_args(Ranking))
    check_choice("order", order, get_args(Order))
    values, weights = scores.double(), weight.double()[predictions]
    importance = {"contribution": weights * values, "weight": weights, "score": values}[ranking]
    if order == "abs":
        return importance.abs()
    if order == "positive_evidence":
        return importance.masked_fill(~((values > 0) & (weights > 0)), -torch.inf)
    return importance


def most_important(importance: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k most important concepts of each image.

    Args:
        importance: ``(B, L)`` float, minus infinity for a concept that is not eligible.
        k: number of concepts, 1 to L.

    Returns:
        ``(B, k)`` int64, most important first, ties to the lower index; and ``(B, k)`` bool, False for a concept that
        is not eligible and throughout an image whose importances are NaN or infinite.

    Example:
        >>> most_important(torch.tensor([[0.5, 2.0, 0.5]]), k=2)
        (tensor([[1, 0]]), tensor([[True, True]]))
    """
    check_tensor("importance", importance, ("B", "L"), "float")
    if not 1 <= k <= importance.shape[1]:
        raise ValueError(
            f"Expected argument `k` to be at least 1 and at most the {importance.shape[1]} concepts, but got {k}."
        )
    ids = importance.argsort(dim=1, descending=True, stable=True)[:, :k]
    broken = (importance.isnan() | importance.isposinf()).any(dim=1, keepdim=True)
    return ids, (importance.gather(1, ids) > -torch.inf) & ~broken


class RankedConcepts(SummaryMetric):
    """Base of the metrics of the k most important concepts of a decision, combined with a base that averages.

    ``summary`` adds every baseline and the lift over it, ``lift_over_<baseline>``, with the bounds of its 95 %
    interval, ``..._low`` and ``..._high``, paired over images.

    Args:
        candidates: ``(L,)`` bool, concepts that are ranked; None for all.

    Raises:
        ValueError: if there are fewer than k candidates.

    Attributes:
        compared: names of the baselines, in the order of the states.
    """

    unit = "fraction"
    higher_is_better = True
    compared: ClassVar[tuple[str, ...]]
    weight: Tensor
    candidates: Tensor | None
    lift_totals: Tensor
    lift_products: Tensor
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
        count = weight.shape[1] if candidates is None else int(candidates.sum())
        if not 1 <= k <= count:
            raise ValueError(f"Expected argument `k` to be at least 1 and at most the {count} concepts, but got {k}.")
        self.k = k
        self.ranking: Ranking = ranking
        self.order: Order = order
        self.register_buffer("weight", weight.detach().clone(), persistent=False)
        self.register_buffer("candidates", None if candidates is None else candidates.clone(), persistent=False)
        # for every baseline the sums of `lift_interval`, over the pairs of an image: value, baseline and number
        count = len(self.compared)
        self.add_state("lift_totals", torch.zeros(count, 3, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("lift_products", torch.zeros(count, 3, 3, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("lift_images", torch.zeros(count, dtype=torch.int64), dist_reduce_fx="sum")

    def _importance(self, scores: Tensor, predictions: Tensor) -> Tensor:
        """``(B, L)`` float64, minus infinity for what is not ranked."""
        importance = concept_importance(scores.detach(), self.weight, predictions, self.ranking, self.order)
        broken = ~scores.isfinite().all(dim=1, keepdim=True)
        if self.candidates is not None:
            importance = importance.masked_fill(~self.candidates, -torch.inf)
        return importance.masked_fill(broken, torch.nan)

    def _compare(self, values: Tensor, baselines: Tensor) -> None:
        """Add ``(B, n)`` values and ``(J, B, n)`` baselines; a pair in which either is NaN is left out."""
        undefined = values.isnan() | baselines.isnan()
        compared = torch.stack([values.expand_as(baselines), baselines, torch.ones_like(baselines)])
        rows = compared.masked_fill(undefined, 0).sum(dim=3).permute(1, 2, 0)  # (J, B, 3)
        self.lift_totals = self.lift_totals + rows.sum(dim=1)
        self.lift_products = self.lift_products + rows.mT @ rows
        self.lift_images = self.lift_images + (~undefined).any(dim=2).sum(dim=1)

    def baselines(self) -> dict[str, Tensor]:
        """The value of every baseline on the pairs seen, float64 scalars; NaN without any.

        Computed from the current states: enter ``sync_context()`` for the states of all processes.
        """
        return dict(zip(self.compared, self.lift_totals[:, 1] / self.lift_totals[:, 2], strict=True))

    def _additions(self) -> dict[str, Any]:
        additions: dict[str, float] = {}
        for row, (name, value) in enumerate(self.baselines().items()):
            totals = self.lift_totals[row]
            bounds = lift_interval(totals, self.lift_products[row], self.lift_images[row])
            additions |= lift_over(name, value, (totals[0] - totals[1]) / totals[2], bounds)
        return additions


_ENDINGS: dict[str | float, str] = {
    "weight": "_weight",
    "score": "_score",
    "abs": "_abs",
    "positive_evidence": "_positive",
    "correct": "_correct",
    3.0: "_a3",
    6.0: "_a6",
}


def ranked_entry(
    name: str,
    options: tuple[str | float, ...],
    metric: type[RankedConcepts],
    words: Words,
    build: Callable[[Facts], RankedConcepts],
    needs: tuple[str, ...],
) -> MetricEntry:
    """The entry of the key ``concepts/<name>`` with an ending for each option that is not the default."""
    ending = "".join(_ENDINGS.get(option, "") for option in options)
    needs = ("weight", "single_label", "training", "named_units", *needs)
    return MetricEntry(f"concepts/{name}{ending}", metric, words, build, needs, view="concepts", full=bool(ending))


def named_weight(facts: Facts) -> Tensor:
    """``(K, M)`` float head weights of the units that stand for a concept."""
    assert facts.weight is not None
    return facts.weight.detach()[:, facts.named].float()
