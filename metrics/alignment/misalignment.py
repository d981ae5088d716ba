"""Reactions of units to changes of the image outside the region their explanation highlights."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torchmetrics.utilities import rank_zero_warn

from metrics.base import AveragedOver, PartsMetric, SeparateMetric
from metrics.entry import MetricEntry, Words
from metrics.general.classification import accuracy
from metrics.general.multilabel_classification import subset_accuracy
from metrics.primitives.checks import check_tensor
from metrics.primitives.intersection_over_union import mask_intersection_over_union
from metrics.primitives.intervals import Range, mean_interval
from metrics.primitives.regions import percentile_mask


def _check_scores(scores: Tensor, perturbed_scores: Tensor, target_ids: Tensor) -> None:
    check_tensor("scores", scores, ("B", "U"), "float")
    check_tensor("perturbed_scores", perturbed_scores, tuple(scores.shape), "float")
    check_tensor("target_ids", target_ids, (scores.shape[0],), "int64")


def _positive_scores(scores: Tensor, target_ids: Tensor) -> tuple[Tensor, Tensor]:
    """Scores in float64 clipped at 0, ``(B, U)``, and those of the targets, ``(B, 1)``."""
    clipped = scores.double().clamp(min=0)
    return clipped, clipped.gather(1, target_ids.clamp(min=0)[:, None])


def misalignment_activation_change(scores: Tensor, perturbed_scores: Tensor, target_ids: Tensor) -> Tensor:
    """Share of its score that a unit loses although nothing changes in its region.

    Source: Sacha et al. (2024): ``1 - s' / s`` with the scores s and s' of the target unit clipped at 0; negative if
    the score rises.

    Args:
        scores: ``(B, U)`` float, clean images.
        perturbed_scores: ``(B, U)`` float, images perturbed outside the target's region.
        target_ids: ``(B,)`` int64 unit of each image, -1 for none.

    Returns:
        ``(B,)`` float64 up to 1, lower is better; NaN where the clean score is not positive, a score is not finite or
        there is no target.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> scores, perturbed = torch.tensor([[2.0, 1.0, 0.5]]), torch.tensor([[0.8, 1.0, 0.9]])
        >>> misalignment_activation_change(scores, perturbed, torch.tensor([0]))
        tensor([0.6000], dtype=torch.float64)
    """
    _check_scores(scores, perturbed_scores, target_ids)
    own = _positive_scores(scores, target_ids)[1].squeeze(1)
    change = 1 - _positive_scores(perturbed_scores, target_ids)[1].squeeze(1) / own
    return change.masked_fill(~change.isfinite() | ~own.isfinite() | (target_ids < 0), torch.nan)


def misalignment_location_change(target_maps: Tensor, perturbed_target_maps: Tensor, quantile: float = 0.9) -> Tensor:
    """Change of the region of a unit although nothing changes in it.

    Source: Sacha et al. (2024): 1 minus the intersection over union of the pixels strictly above the quantile of each
    map.

    Args:
        target_maps: ``(B, H, W)`` float, bilinearly upsampled map of the target unit, clean images.
        perturbed_target_maps: the same on perturbed images.
        quantile: of each map, in (0, 1).

    Returns:
        ``(B,)`` float64 fractions, lower is better; NaN where either map is flat or not finite.

    Raises:
        ValueError: if a shape or dtype differs from the above or ``quantile`` is outside (0, 1).

    Example:
        >>> maps = torch.arange(20.0).view(1, 4, 5)  # 18 and 19 are above the quantile, 17.1
        >>> moved = maps.clone()
        >>> moved[0, 0, 0], moved[0, 3, 3] = 18.0, 0.0
        >>> misalignment_location_change(maps, moved)
        tensor([0.6667], dtype=torch.float64)
    """
    check_tensor("target_maps", target_maps, ("B", "H", "W"), "float")
    check_tensor("perturbed_target_maps", perturbed_target_maps, tuple(target_maps.shape), "float")
    regions = percentile_mask(target_maps, quantile), percentile_mask(perturbed_target_maps, quantile)
    return 1 - mask_intersection_over_union(*regions)


def _better_strangers(scores: Tensor, target_ids: Tensor, labels: Tensor, owner: Tensor, active: Tensor) -> Tensor:
    """``(B,)`` float64 number of active units of other classes above the target, NaN where not finite."""
    owned = labels.double() @ owner.T.double() > 0 if labels.dtype == torch.bool else owner.T[labels]
    clipped, own = _positive_scores(scores, target_ids)
    broken = (~scores.isfinite() & active).any(dim=1) | ~own.squeeze(1).isfinite()
    return ((clipped > own) & ~owned & active).sum(dim=1).double().masked_fill(broken, torch.nan)


def misalignment_rank_change(
    scores: Tensor,
    perturbed_scores: Tensor,
    target_ids: Tensor,
    labels: Tensor,
    owner: Tensor,
    active: Tensor | None = None,
) -> Tensor:
    """Number of units of other classes that overtake a unit although nothing changes in its region.

    Source: Sacha et al. (2024): the number of active units not owned by the image's class whose score, clipped at 0,
    is strictly above that of the target, after the perturbation minus before.

    Args:
        scores: ``(B, U)`` float, clean images.
        perturbed_scores: ``(B, U)`` float, images perturbed outside the target's region.
        target_ids: ``(B,)`` int64 unit of each image, -1 for none.
        labels: ``(B,)`` int64 in ``[0, K)``, or ``(B, K)`` bool, where a unit of any true label is owned.
        owner: ``(U, K)`` bool.
        active: ``(U,)`` bool; None for all.

    Returns:
        ``(B,)`` float64 ranks, lower is better; NaN where a score that takes part is not finite or there is no target.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> scores, perturbed = torch.tensor([[2.0, 1.0, 0.5]]), torch.tensor([[0.8, 1.0, 0.9]])
        >>> owner = torch.tensor([[True, False], [False, True], [False, True]])
        >>> misalignment_rank_change(scores, perturbed, torch.tensor([0]), torch.tensor([0]), owner)
        tensor([2.], dtype=torch.float64)
    """
    _check_scores(scores, perturbed_scores, target_ids)
    images, num_units = scores.shape
    check_tensor("owner", owner, (num_units, "K"), "bool")
    if labels.dtype == torch.bool:
        check_tensor("labels", labels, (images, owner.shape[1]), "bool")
    else:
        check_tensor("labels", labels, (images,), "int64")
    if active is None:
        active = torch.ones(num_units, dtype=torch.bool, device=scores.device)
    check_tensor("active", active, (num_units,), "bool")
    before = _better_strangers(scores, target_ids, labels, owner, active)
    after = _better_strangers(perturbed_scores, target_ids, labels, owner, active)
    return (after - before).masked_fill(target_ids < 0, torch.nan)


def accuracy_change(logits: Tensor, perturbed_logits: Tensor, labels: Tensor) -> Tensor:
    """Whether the image is no longer classified correctly.

    Source: Sacha et al. (2024): 1[correct before] - 1[correct after]. For multilabel data, correct means
    exactly the true label set.

    Args:
        logits: ``(B, K)`` float, clean images.
        perturbed_logits: ``(B, K)`` float, perturbed images.
        labels: ``(B,)`` int64 in ``[0, K)``, or ``(B, K)`` bool.

    Returns:
        ``(B,)`` float64, -1, 0 or 1, lower is better; NaN where a logit is not finite.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> accuracy_change(torch.tensor([[2.0, 1.0]]), torch.tensor([[0.0, 1.0]]), torch.tensor([0]))
        tensor([1.], dtype=torch.float64)
    """
    check_tensor("perturbed_logits", perturbed_logits, tuple(logits.shape), "float")
    correct = subset_accuracy if labels.dtype == torch.bool else accuracy
    return correct(logits, labels) - correct(perturbed_logits, labels)


class SpatialMisalignment(SeparateMetric, PartsMetric):
    """Four mean changes over images that are perturbed outside the region of a target unit.

    Source: Sacha et al. (2024). For all four lower is better, and each has its own number of images, those with a
    target unit on which it is defined. With s the scores of an image clipped at 0, t its target unit, A the map of t,
    and ' for the perturbed image:

    - ``"pac"``, fraction: ``1 - s'_t / s_t``, negative if the score rises; undefined where s_t = 0.
    - ``"plc"``, fraction: ``1 - IoU(A > q(A), A' > q(A'))`` with q the ``quantile`` of a map; undefined where flat.
    - ``"prc"``, ranks: ``#{u : s'_u > s'_t} - #{u : s_u > s_t}`` over active units u not owned by the image's class.
    - ``"ac"``, fraction: ``1[correct before] - 1[correct after]``.

    Despite their names ``"pac"``, ``"plc"`` and ``"prc"`` differ from the changes of Schlinge et al. (2025).

    Args:
        owner: ``(U, K)`` bool, units owned by each class.
        active: ``(U,)`` bool; None for all.
        quantile: of each map, above which a pixel is in the region.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        scores: ``(B, U)`` float, clean images.
        perturbed_scores: ``(B, U)`` float, images perturbed outside the region of the target.
        target_ids: ``(B,)`` int64 unit of each image, -1 for none.
        target_maps: ``(B, H, W)`` float, bilinearly upsampled map of the target on the clean images.
        perturbed_target_maps: ``(B, H, W)`` float, the same on the perturbed images.
        logits: ``(B, K)`` float, clean images.
        perturbed_logits: ``(B, K)`` float, perturbed images.
        labels: ``(B,)`` int64 in ``[0, K)``, or ``(B, K)`` bool for multilabel data.

    Raises:
        ValueError: if an argument differs from the above.

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

    name = "misalignment"
    units: ClassVar[dict[str, str]] = {"pac": "fraction", "plc": "fraction", "prc": "ranks", "ac": "fraction"}
    value_ranges: ClassVar[dict[str, Range]] = {
        "pac": (-math.inf, 1.0),
        "plc": (0.0, 1.0),
        "prc": (-math.inf, math.inf),
        "ac": (-1.0, 1.0),
    }
    parts = tuple(units)
    unit = "fraction, ranks"
    reads = (
        "scores",
        "perturbed_scores",
        "target_ids",
        "target_maps",
        "perturbed_target_maps",
        "logits",
        "perturbed_logits",
        "labels",
    )
    averaged_over: AveragedOver = "image"
    higher_is_better = False
    owner: Tensor
    active: Tensor | None
    value_sum: Tensor
    square_sum: Tensor
    image_count: Tensor
    skipped: Tensor

    def __init__(self, owner: Tensor, active: Tensor | None = None, quantile: float = 0.9, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_tensor("owner", owner, ("U", "K"), "bool")
        if active is not None:
            check_tensor("active", active, (owner.shape[0],), "bool")
        self.register_buffer("owner", owner, persistent=False)
        self.register_buffer("active", active, persistent=False)
        self.quantile = quantile
        for state, dtype in (
            ("value_sum", torch.float64),
            ("square_sum", torch.float64),
            ("image_count", torch.int64),
            ("skipped", torch.int64),
        ):
            self.add_state(state, torch.zeros(len(self.parts), dtype=dtype), dist_reduce_fx="sum")

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
        """Add a batch."""
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
        """The four means over all processes.

        Returns:
            ``"pac"``, ``"plc"``, ``"prc"`` and ``"ac"``, float64 scalars; NaN, with a warning, where nothing was
            defined.
        """
        if (self.image_count == 0).any() and self.update_called:
            rank_zero_warn(f"A part of {type(self).__name__} is NaN: nothing it could measure.", UserWarning)
        return dict(zip(self.parts, self.value_sum / self.image_count, strict=True))

    def summary(self) -> dict[str, dict[str, float]]:
        """The four means with their intervals, over all processes.

        Every process has to call it, as with ``compute``.

        Returns:
            For each of the four: ``value``, the bounds ``low`` and ``high`` of the 95 % interval, ``n`` images and the
            number of undefined ones ``skipped``; NaN for what is undefined.
        """
        with self.sync_context(dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync), torch.no_grad():
            summaries = {}
            for i, part in enumerate(self.parts):
                total, n = self.value_sum[i], self.image_count[i]
                low, high = mean_interval(total, self.square_sum[i], n, value_range=self.value_ranges[part])
                summaries[part] = {
                    "value": float(total / n),
                    "low": float(low),
                    "high": float(high),
                    "n": int(n),
                    "skipped": int(self.skipped[i]),
                }
        return summaries


_WORDS = {
    "pac": Words(
        question="Can changes elsewhere in the image weaken a unit?",
        name="Misalignment, activation change",
        formula="mean of 1 − s′ / s of the best unit, under an attack outside its region",
        source="[S24]",
        misread="Signed: a score that rises counts negative and hides others that fall.",
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
        misread="The attack does not aim at it: it lowers a unit, not the class.",
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
    )


MISALIGNMENT = tuple(
    MetricEntry(
        f"alignment/{view}_{part}",
        SpatialMisalignment,
        words if view == "misalignment" else _under_noise(words),
        lambda facts: SpatialMisalignment(facts.owner, facts.active),
        needs=("units",),
        view=view,
        part=part,
        shared=view,
    )
    for view in ("misalignment", "misalignment_noise")
    for part, words in _WORDS.items()
)
