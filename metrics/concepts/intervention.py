"""What corrections of predicted concepts do to the predicted class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from metrics.base import ImageMean
from metrics.concepts.prediction import PREDICTED
from metrics.entry import MetricEntry, Words
from metrics.general.classification import accuracy
from metrics.primitives.checks import check_tensor


def group_uncertainty(probabilities: Tensor, groups: Tensor, num_groups: int) -> Tensor:
    """How uncertain the concepts of a group are.

    Source: Koh et al. (2020) correct the concepts closest to a probability of 1/2 first. For groups, ours: the mean of
    ``-|p - 1/2|`` over their concepts.

    Args:
        probabilities: ``(B, U)`` float in [0, 1].
        groups: ``(U,)`` int64 in ``[0, num_groups)``, -1 for a unit that is never corrected.
        num_groups: G.

    Returns:
        ``(B, G)`` float64 in [-1/2, 0], larger is less certain; NaN for a group without a unit.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> group_uncertainty(torch.tensor([[0.5, 0.75, 1.0]]), torch.tensor([0, 0, 1]), 2)
        tensor([[-0.1250, -0.5000]], dtype=torch.float64)
    """
    check_tensor("probabilities", probabilities, ("B", "U"), "float")
    check_tensor("groups", groups, (probabilities.shape[1],), "int64")
    member = (groups[:, None] == torch.arange(num_groups, device=groups.device)).double()
    return -(probabilities.double() - 0.5).abs() @ member / member.sum(dim=0)


def intervention_masks(priority: Tensor, groups: Tensor) -> Tensor:
    """The units that are corrected after each step, a group more per step.

    Args:
        priority: ``(B, T, G)`` float, the order of the groups in T trials: largest first, ties to the lower index.
        groups: ``(U,)`` int64 in ``[0, G)``, -1 for a unit that is never corrected.

    Returns:
        ``(B, T, G, U)`` bool, after 1 to G steps.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> intervention_masks(torch.tensor([[[0.1, 0.7]]]), torch.tensor([0, 1, 1, -1]))[0, 0]
        tensor([[False,  True,  True, False],
                [ True,  True,  True, False]])
    """
    check_tensor("priority", priority, ("B", "T", "G"), "float")
    check_tensor("groups", groups, ("U",), "int64")
    order = priority.argsort(dim=2, descending=True, stable=True)
    place = order.argsort(dim=2)  # of every group, from 0
    corrected_at = place.index_select(2, groups.clamp(min=0)).masked_fill(groups < 0, priority.shape[2])
    return corrected_at[:, :, None] <= torch.arange(priority.shape[2], device=groups.device)[:, None]


def intervention_curve(intervened_logits: Tensor, labels: Tensor) -> Tensor:
    """Whether the class is right after each step of correction.

    Source: Koh et al. (2020), section 3 (test-time intervention).

    Args:
        intervened_logits: ``(B, T, S, K)`` float, of T trials after 0 to S - 1 steps.
        labels: ``(B,)`` int64 in ``[0, K)``.

    Returns:
        ``(B, T, S)`` float64, 1 or 0, see :func:`metrics.functional.accuracy`; NaN where a logit is not finite.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> intervention_curve(torch.tensor([[[[1.0, 0.0], [0.0, 1.0]]]]), torch.tensor([1]))
        tensor([[[0., 1.]]], dtype=torch.float64)
    """
    check_tensor("intervened_logits", intervened_logits, ("B", "T", "S", "K"), "float")
    check_tensor("labels", labels, (len(intervened_logits),), "int64")
    shape = intervened_logits.shape[:3]
    repeated = labels[:, None, None].expand(shape).flatten()
    return accuracy(intervened_logits.flatten(0, 2), repeated).view(shape)


TRIALS = 5  # random orders of Koh et al. (2020)


@dataclass(frozen=True)
class Correction:
    """How concepts are corrected.

    Args:
        uncertain_first: those closest to a probability of 1/2 first, instead of in random orders.
        single: one concept per step, instead of all that answer one question, such as the colour of a part.
        values: ``"binary"`` or ``"percentiles"``; None for what the model takes by itself.
    """

    uncertain_first: bool = False
    single: bool = False
    values: str | None = None

    @property
    def trials(self) -> int:
        """Orders that are tried."""
        return 1 if self.uncertain_first else TRIALS

    def __str__(self) -> str:
        said = {
            "one by one": self.single,
            "binary values": self.values == "binary",
            "percentiles": self.values == "percentiles",
            "uncertain first": self.uncertain_first,
        }
        return ", ".join(words for words, holds in said.items() if holds)


# ending of keys -> how concepts are corrected
CORRECTIONS: dict[str, Correction] = {
    f"{ending}{'_uncertainty' if first else ''}": Correction(first, ending == "_single", values)
    for ending, values in (("", None), ("_single", None), ("_binary", "binary"), ("_percentiles", "percentiles"))
    for first in (False, True)
}


class InterventionArea(ImageMean):
    """Mean accuracy while concepts are corrected one group after another (higher is better).

    Source: Koh et al. (2020), section 3 (test-time intervention); the number is ours: the area under the curve of
    accuracy over 0 to S steps by the trapezoidal rule, divided by S, and averaged over T trials.

    ``summary`` adds the ``curve`` itself, a list of S + 1 accuracies averaged over trials; ``curve_sd``, their standard
    deviations over trials (T - 1); ``standard_deviation``, that of the area; ``baseline``, the accuracy without any
    correction; and ``lift``, the area above it. The interval is over images.

    Args:
        steps: S, how many groups are corrected in the end.
        trials: T, orders in which they are.
        suffix: of the name.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        intervened_logits: ``(B, T, S + 1, K)`` float, after 0 to S steps; images with a logit that is not finite are
            undefined.
        labels: ``(B,)`` int64 in ``[0, K)``.

    Raises:
        ValueError: if an argument differs from the above.

    Example:
        >>> metric = InterventionArea(steps=2)
        >>> logits = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])  # the last correction mends the class
        >>> metric.update(logits[None, None], torch.tensor([1]))
        >>> metric.compute(), metric.summary()["curve"]
        (tensor(0.2500, dtype=torch.float64), [0.0, 0.0, 1.0])
    """

    unit = "fraction"
    value_range = (0.0, 1.0)
    reads = ("intervened_logits", "labels")
    higher_is_better = True
    curve_sum: Tensor

    def __init__(self, steps: int, trials: int = 1, suffix: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if steps < 1 or trials < 1:
            raise ValueError(f"Expected arguments `steps`, `trials` to be at least 1, but got {steps} and {trials}.")
        self.name = f"area{suffix}"
        self.add_state("curve_sum", torch.zeros(trials, steps + 1, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, intervened_logits: Tensor, labels: Tensor) -> None:
        """Add a batch."""
        if intervened_logits.shape[1:3] != self.curve_sum.shape:
            raise ValueError(
                f"Expected argument `intervened_logits` to be of shape (B, T, S + 1, K) with T, S + 1 = "
                f"{tuple(self.curve_sum.shape)}, but got {tuple(intervened_logits.shape)}."
            )
        curves = intervention_curve(intervened_logits, labels)
        areas = torch.trapezoid(curves, dim=2).mean(dim=1) / (curves.shape[2] - 1)
        self._accumulate(areas)
        self.curve_sum = self.curve_sum + curves.masked_fill(~areas.isfinite()[:, None, None], 0).sum(dim=0)

    def summary(self) -> dict[str, Any]:
        """The value with its interval, and the curve.

        Returns:
            What :meth:`SummaryMetric.summary` returns, and ``curve``, ``curve_sd``, ``standard_deviation``,
            ``baseline`` and ``lift``.
        """
        summary = super().summary()
        with self.sync_context(dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync):
            trials = self.curve_sum / self.image_count
        curve = trials.mean(dim=0)
        area = torch.trapezoid(trials, dim=1) / (trials.shape[1] - 1)
        return {
            **summary,
            "curve": curve.tolist(),
            "curve_sd": _spread(trials).tolist(),
            "standard_deviation": float(_spread(area)),
            "baseline": float(curve[0]),
            "lift": summary["value"] - float(curve[0]),
        }


class InterventionFinal(ImageMean):
    """Accuracy once all concepts are corrected (higher is better).

    Source: Koh et al. (2020), section 3 (test-time intervention). ``summary`` adds ``baseline``, the accuracy without
    any correction, and ``lift``, the difference. Interval: Wilson.

    Args:
        suffix: of the name.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        intervened_logits: ``(B, T, S + 1, K)`` float, after 0 to S steps; the first trial counts.
        labels: ``(B,)`` int64 in ``[0, K)``.

    Example:
        >>> metric = InterventionFinal()
        >>> metric.update(torch.tensor([[1.0, 0.0], [0.0, 1.0]])[None, None], torch.tensor([1]))
        >>> metric.compute(), metric.summary()["lift"]
        (tensor(1., dtype=torch.float64), 1.0)
    """

    unit = "fraction"
    value_range = (0.0, 1.0)
    reads = ("intervened_logits", "labels")
    higher_is_better = True
    interval = "wilson"
    baseline_sum: Tensor

    def __init__(self, suffix: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.name = f"final{suffix}"
        self.add_state("baseline_sum", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, intervened_logits: Tensor, labels: Tensor) -> None:
        """Add a batch."""
        first, last = intervention_curve(intervened_logits[:, :1, [0, -1]], labels)[:, 0].unbind(dim=1)
        undefined = ~(first.isfinite() & last.isfinite())
        self._accumulate(last.masked_fill(undefined, torch.nan))
        self.baseline_sum = self.baseline_sum + first.masked_fill(undefined, 0).sum()

    def summary(self) -> dict[str, float]:
        """The value with its interval, ``baseline`` and ``lift``."""
        summary = super().summary()
        with self.sync_context(dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync):
            baseline = float(self.baseline_sum / self.image_count)
        return {**summary, "baseline": baseline, "lift": summary["value"] - baseline}


def _spread(values: Tensor) -> Tensor:
    """Standard deviation over the first axis; NaN of a single value."""
    return values.std(dim=0) if len(values) > 1 else values[0] * torch.nan


_STORED: dict[str | None, tuple[str, ...]] = {None: ("own_values",), "percentiles": ("percentiles",), "binary": ()}
_AREA_MISREAD = {
    "": "A model without errors has 1 and nothing to correct: read the `lift`. Areas over other numbers of groups do "
    "not compare.",
    "_uncertainty": "One order per image; a model that is certain and wrong is corrected late.",
    "_single": "Steps are single concepts: not comparable with groups.",
    "_binary": "A head that reads logits has not learnt what 0 and 1 mean.",
    "_percentiles": "The percentiles are those of training images, on which a model is surer than on others.",
}


def _area(ending: str, how: Correction) -> MetricEntry:
    return MetricEntry(
        f"intervention/area{ending}",
        InterventionArea,
        Words(
            question="How good is the model, averaged over the steps of correction?",
            name=f"Area under the intervention curve, {how if ending else 'own values, random'}",
            formula=f"as `intervention/area`, {how}"
            if ending
            else "Σ over steps s of (a_s + a_(s+1)) / 2, divided by their number S; a_s is the accuracy after s groups "
            "of concepts are corrected",
            source="[K20] 3",
            misread=_AREA_MISREAD.get(ending, "As above."),
        ),
        lambda facts: InterventionArea(facts.unit_groups(how.single)[1], how.trials),
        needs=(*PREDICTED, *_STORED[how.values]),
        view=f"intervention{ending}",
    )


def _final(ending: str, how: Correction) -> MetricEntry:
    return MetricEntry(
        f"intervention/final{ending}",
        InterventionFinal,
        Words(
            question="How good is it with all concepts corrected?",
            name="Accuracy after all corrections" + (f", {how}" if ending else ""),
            formula="share of images with argmax o(x) = y once all concepts are corrected",
            source="[K20] 3",
            misread="It is the accuracy of the head on true concepts; nothing of the image is left.",
        ),
        needs=(*PREDICTED, *_STORED[how.values]),
        view=f"intervention{ending}",
    )


def _entries() -> Iterator[MetricEntry]:
    for ending, how in CORRECTIONS.items():
        yield _area(ending, how)
        if not (how.single or how.uncertain_first):  # the accuracy at the end depends on the values alone
            yield _final(ending, how)


ENTRIES = tuple(_entries())
