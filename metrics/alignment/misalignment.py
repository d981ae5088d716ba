"""Spatial misalignment: reactions of units to changes of the image outside the region their explanation highlights."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torchmetrics.utilities import rank_zero_warn

from protometry.metrics.alignment.misalignment_changes import (
    accuracy_change,
    misalignment_activation_change,
    misalignment_location_change,
    misalignment_rank_change,
)
from protometry.metrics.base import ImageSums, PartsMetric, entry
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_tensor
from protometry.metrics.primitives.intervals import Range, mean_interval


class SpatialMisalignment(ImageSums, PartsMetric):
    """Four mean changes over images that are perturbed outside the region of a target unit.

    Source: Sacha et al. (2024). ``"pac"``, ``"plc"``, ``"prc"`` and ``"ac"`` are the kernels of
    ``misalignment_changes``, each over its own images: those with a target unit on which it is defined. Despite their
    names they differ from the changes of Schlinge et al. (2025).

    Args:
        quantile: of each map, above which a pixel is in the region.

    Example:
        >>> metric = SpatialMisalignment(owner=torch.eye(2, dtype=torch.bool))
        >>> maps, logits = torch.tensor([[[0.0, 1.0]]]), torch.tensor([[2.0, 1.0]])
        >>> target, label = torch.tensor([0]), torch.tensor([0])
        >>> metric.update(
        ...     torch.tensor([[2.0, 1.0]]), torch.tensor([[0.5, 1.0]]), target, maps, maps, logits, logits, label
        ... )
        >>> {name: value.item() for name, value in metric.compute().items()}
        {'pac': 0.75, 'plc': 0.0, 'prc': 1.0, 'ac': 0.0}
    """

    units: ClassVar[dict[str, str]] = {"pac": "fraction", "plc": "fraction", "prc": "ranks", "ac": "fraction"}
    value_ranges: ClassVar[dict[str, Range]] = {
        "pac": (-math.inf, 1.0),
        "plc": (0.0, 1.0),
        "prc": (-math.inf, math.inf),
        "ac": (-1.0, 1.0),
    }
    averaged_over = "image"
    higher_is_better = False
    owner: Tensor
    active: Tensor | None

    def __init__(self, owner: Tensor, active: Tensor | None = None, quantile: float = 0.9, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.register_buffer("owner", owner, persistent=False)
        self.register_buffer("active", active, persistent=False)
        self.quantile = quantile
        self._add_sums(len(self.units))

    def update(  # noqa: PLR0913 - one record feeds four numbers of one attack
        self,
        scores: Tensor,
        perturbed_scores: Tensor,
        target_ids: Tensor,
        target_maps: Tensor,
        perturbed_target_maps: Tensor,
        logits: Tensor,
        perturbed_logits: Tensor,
        labels: Tensor,
    ) -> None:
        check_tensor("scores", scores, ("B", self.owner.shape[0]), "float")
        values = torch.stack(
            [
                misalignment_activation_change(scores, perturbed_scores, target_ids),
                misalignment_location_change(target_maps, perturbed_target_maps, self.quantile),
                misalignment_rank_change(
                    scores, perturbed_scores, target_ids, labels, owner=self.owner, active=self.active
                ),
                accuracy_change(logits, perturbed_logits, labels),
            ]
        ).detach()
        defined = values.isfinite() & (target_ids >= 0)  # without a target nothing was protected
        values = values.masked_fill(~defined, 0)
        self.value_sum = self.value_sum + values.sum(dim=1)
        self.square_sum = self.square_sum + values.square().sum(dim=1)
        self.image_count = self.image_count + defined.sum(dim=1)
        self.skipped = self.skipped + (~defined).sum(dim=1)

    def compute(self) -> dict[str, Tensor]:
        """The four means over all processes, float64 scalars."""
        if (self.image_count == 0).any() and self.update_called:
            rank_zero_warn(f"A part of {type(self).__name__} is NaN: nothing it could measure.", UserWarning)
        return dict(zip(self.units, self.value_sum / self.image_count, strict=True))

    def summary(self) -> dict[str, dict[str, float]]:
        """For each of the four what :meth:`SummaryMetric.summary` returns; every process has to call it."""
        with self.sync_context(dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync), torch.no_grad():
            summaries = {}
            for i, part in enumerate(self.units):
                total, n = self.value_sum[i], self.image_count[i]
                low, high = mean_interval(total, self.square_sum[i], n, value_range=self.value_ranges[part])
                summaries[part] = entry(total / n, n, self.skipped[i], low, high)
        return summaries


_WORDS = {
    "pac": Words(
        question="Can changes elsewhere in the image weaken a unit?",
        name="Misalignment, activation change",
        formula="mean of 1 − s′ / s of the best unit, under an attack outside its region",
        source="[S24]",
        misread="Signed: a rising score is negative and can hide falling ones.",
        finding="An attack on the image outside of what its best unit marks takes {value} of the score of this unit.",
    ),
    "plc": Words(
        question="Can changes elsewhere move the place it looks at?",
        name="Misalignment, location change",
        formula="mean of 1 − IoU of the top 10 % of the map, before and after, under an attack outside its region",
        source="[S24]",
        misread="A fraction here, cells in completeness, continuity and contrastivity.",
    ),
    "prc": Words(
        question="Can changes elsewhere let other units overtake it?",
        name="Misalignment, rank change",
        formula="mean number of units of other classes that overtake, under an attack outside its region",
        source="[S24]",
        misread="Signed, and grows with the number of units.",
    ),
    "ac": Words(
        question="Can changes elsewhere make the model wrong?",
        name="Misalignment, accuracy change",
        formula="accuracy before − after an attack outside the region of the best unit",
        source="[S24]",
        misread="The attack aims at a unit, not at the class.",
    ),
}


def _under_noise(words: Words) -> Words:
    return replace(
        words,
        question=f"{words.question} (with random changes)",
        name=f"{words.name}, noise",
        formula="the same under the random start of the attack",
        source="released code of [S24]",
        misread="What the released code measures: the gradient of its attack is 0.",
        finding="",
    )


MISALIGNMENT = tuple(
    MetricEntry(
        f"alignment/{view}_{part}",
        SpatialMisalignment,
        words if view == "misalignment" else _under_noise(words),
        lambda facts: SpatialMisalignment(facts.units.owner, facts.active),
        needs=("units",),
        view=view,
        attacked=True,
        part=part,
        shared=view,
    )
    for view in ("misalignment", "misalignment_noise")
    for part, words in _WORDS.items()
)
