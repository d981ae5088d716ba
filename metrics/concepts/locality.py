"""Whether the score of a concept depends on the part that the concept is about, and on no other."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from protometry.metrics.concepts.prediction import ConceptPrediction, build
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_at_least, check_range, check_tensor
from protometry.metrics.primitives.intervals import lift_over, pairs_interval


class ConceptLocality(ConceptPrediction):
    """Mean over concepts of the share of their own part in the changes of their score (higher is better).

    Source: the question of Raman et al. (2025), who perturb or mask what a concept is not about; the number is ours. A
    part of the object is removed at a time: ``Σ_x |s(x) - s(x without the own part)|`` over the sum of the same over
    all parts. A factor of a score changes nothing, but a sigmoid does: probabilities near 0 and 1 hardly change. Images
    count if all parts are visible; a concept of no part, or whose score never changes, is undefined.

    ``summary`` adds ``chance``, 1/N, and ``other_concepts``, the mean over concepts of the share that the same part has
    in the changes of concepts of other parts: a large part may change all scores. The interval of
    ``lift_over_other_concepts``, the mean difference from it, is for other concepts on the same images
    (:func:`~protometry.metrics.functional.pairs_interval`), since a concept is also compared with by others.

    Args:
        parts: ``(L,)`` int64 in ``[0, N)``, the part that each concept is about, -1 for none.
        num_parts: N.

    Inputs:
        score_changes: ``(B, U, N)`` float >= 0, by how much each score changes without each part.

    Example:
        >>> metric = ConceptLocality(torch.tensor([0]), num_concepts=1, parts=torch.tensor([1]), num_parts=2)
        >>> metric.update(torch.tensor([[[1.0, 3.0]]]), torch.ones(1, 2, dtype=torch.bool))
        >>> metric.compute()
        tensor(0.7500, dtype=torch.float64)
    """

    higher_is_better = True
    undefined = "on no image are all parts visible, or no score changes without a part"
    parts: Tensor
    changes: Tensor

    def __init__(
        self,
        concepts: Tensor,
        num_concepts: int,
        active: Tensor | None = None,
        *,
        parts: Tensor,
        num_parts: int,
        **kwargs: Any,
    ) -> None:
        super().__init__(concepts, num_concepts, active, **kwargs)
        check_at_least("num_parts", num_parts, 1)
        check_tensor("parts", parts, (num_concepts,), "int64")
        check_range("parts", parts, -1, num_parts - 1)
        self.register_buffer("parts", parts.masked_fill(~self.named, -1), persistent=False)
        self.add_state("changes", torch.zeros(num_concepts, num_parts, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, score_changes: Tensor, visible: Tensor) -> None:
        check_tensor("score_changes", score_changes, ("B", self.num_units, self.changes.shape[1]), "float")
        check_range("score_changes", score_changes, 0, math.inf)
        check_tensor("visible", visible, (len(score_changes), self.changes.shape[1]), "bool")
        changes = score_changes.detach().double().index_select(1, self.units)
        shown, finite = visible.all(dim=1), changes.isfinite().all(dim=2)
        counted = finite & shown[:, None]
        self.dropped = self.dropped + (~counted & (self.parts >= 0)).sum()
        self.changes = self.changes + changes.masked_fill(~counted[:, :, None], 0).sum(dim=0)

    def values(self) -> Tensor:
        own = self._shares().gather(1, self.parts.clamp(min=0)[:, None])[:, 0]
        return own.masked_fill(self.parts < 0, torch.nan)

    def _shares(self) -> Tensor:
        """``(L, N)`` of every part in the changes of a concept, NaN where there are none."""
        return self.changes / self.changes.sum(dim=1, keepdim=True)

    def _additions(self) -> dict[str, Any]:
        shares, values = self._shares(), self.values()
        other = (self.parts != self.parts[:, None]) & (self.parts >= 0)  # (L, L)
        of_others = shares.T[self.parts.clamp(min=0)].masked_fill(~other, torch.nan)  # the part of each in the others
        pairs = values[:, None] - of_others
        lift = pairs.nanmean(dim=1).nanmean()
        bounds = pairs_interval(pairs, value_range=(-1.0, 1.0))
        return {"chance": 1 / shares.shape[1], **lift_over("other_concepts", values.nanmean() - lift, lift, bounds)}


LOCALITY = MetricEntry(
    "concepts/locality",
    ConceptLocality,
    Words(
        question="Does a concept depend on its own part alone?",
        name="Locality",
        formula="mean over concepts of Σ abs(s(x) − s(x without the own part)) / Σ over parts of the same",
        source="none, after [R25]",
        misread="Read `lift_over_other_concepts`: a part that covers much of the object changes every score. "
        "Probabilities near 0 and 1 hide changes that logits show: 84 % against 56 % of the same concept layer.",
        finding="{value} of the changes of a concept's score are due to the part it is about.",
    ),
    lambda facts: build(
        facts, ConceptLocality, parts=facts.removable_part_of_concepts, num_parts=len(facts.removable_parts)
    ),
    needs=("concepts", "removable_parts", "single_label", "interventions", "label_map"),
    view="part_removal",
)
