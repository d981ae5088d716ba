"""What corrections of predicted concepts do to the predicted class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from protometry.metrics.base import ImageMean
from protometry.metrics.concepts.prediction import PREDICTED
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.general.accuracy import accuracy
from protometry.metrics.intervention.corrections import CORRECTIONS, Correction
from protometry.metrics.primitives.checks import check_at_least, check_labels, check_tensor


def intervention_curve(intervened_logits: Tensor, labels: Tensor) -> Tensor:
    """Whether the class is right after each step of correction.

    Source: Koh et al. (2020), section 3 (test-time intervention).

    Args:
        intervened_logits: ``(B, T, S, K)`` float, of T trials after 0 to S - 1 steps.
        labels: ``(B,)`` int64 in ``[0, K)``.

    Returns:
        ``(B, T, S)`` float64, 1 or 0, see :func:`protometry.metrics.functional.accuracy`; NaN where a logit is not
        finite.
    """
    check_tensor("intervened_logits", intervened_logits, ("B", "T", "S", "K"), "float")
    check_labels(labels, len(intervened_logits), intervened_logits.shape[3])
    shape = intervened_logits.shape[:3]
    repeated = labels[:, None, None].expand(shape).flatten()
    return accuracy(intervened_logits.flatten(0, 2), repeated).view(shape)


class InterventionArea(ImageMean):
    """Mean accuracy while concepts are corrected one group after another (higher is better).

    Source: Koh et al. (2020) for the curve; the number is ours: the area under it by the trapezoidal rule, divided by
    S, the number of steps, and averaged over T trials.

    ``summary`` adds the ``curve`` itself, a list of S + 1 accuracies averaged over trials; ``curve_sd``, their standard
    deviations over trials (T - 1); ``standard_deviation``, the area's; ``baseline``, the accuracy without any
    correction; and ``lift``, the area above it.

    Args:
        steps: S, how many groups are corrected in the end.
        trials: T, orders in which they are.

    Example:
        >>> metric = InterventionArea(steps=2)
        >>> logits = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])  # the last correction mends the class
        >>> metric.update(logits[None, None], torch.tensor([1]))
        >>> metric.compute(), metric.summary()["curve"]
        (tensor(0.2500, dtype=torch.float64), [0.0, 0.0, 1.0])
    """

    unit = "fraction"
    higher_is_better = True
    curve_sum: Tensor

    def __init__(self, steps: int, trials: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if steps < 1 or trials < 1:
            raise ValueError(f"Expected arguments `steps`, `trials` to be at least 1, but got {steps} and {trials}.")
        self.add_state("curve_sum", torch.zeros(trials, steps + 1, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, intervened_logits: Tensor, labels: Tensor) -> None:
        if intervened_logits.shape[1:3] != self.curve_sum.shape:
            raise ValueError(
                f"Expected argument `intervened_logits` to be of shape (B, T, S + 1, K) with T, S + 1 = "
                f"{tuple(self.curve_sum.shape)}, but got {tuple(intervened_logits.shape)}."
            )
        curves = intervention_curve(intervened_logits, labels)
        areas = torch.trapezoid(curves, dim=2).mean(dim=1) / (curves.shape[2] - 1)
        self._accumulate(areas)
        self.curve_sum = self.curve_sum + curves.masked_fill(~areas.isfinite()[:, None, None], 0).sum(dim=0)

    def _additions(self) -> dict[str, Any]:
        trials = self.curve_sum / self.image_count
        curve = trials.mean(dim=0)
        area = torch.trapezoid(trials, dim=1) / (trials.shape[1] - 1)
        return {
            "curve": curve.tolist(),
            "curve_sd": _spread(trials).tolist(),
            "standard_deviation": float(_spread(area)),
            "baseline": float(curve[0]),
            "lift": float(self.value_sum / self.image_count - curve[0]),
        }


class InterventionFinal(ImageMean):
    """Accuracy once all concepts are corrected (higher is better).

    ``summary`` adds ``baseline``, the accuracy without any correction, and ``lift``, the difference.

    Example:
        >>> metric = InterventionFinal()
        >>> metric.update(torch.tensor([[1.0, 0.0], [0.0, 1.0]])[None, None], torch.tensor([1]))
        >>> metric.compute(), metric.summary()["lift"]
        (tensor(1., dtype=torch.float64), 1.0)
    """

    unit = "fraction"
    higher_is_better = True
    interval = "wilson"
    baseline_sum: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("baseline_sum", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, intervened_logits: Tensor, labels: Tensor) -> None:
        check_tensor("intervened_logits", intervened_logits, ("B", "T", "S", "K"), "float")
        for axis in (1, 2):
            check_at_least(f"intervened_logits.shape[{axis}]", intervened_logits.shape[axis], 1)
        first, last = intervention_curve(intervened_logits[:, :1, [0, -1]], labels)[:, 0].unbind(dim=1)
        undefined = ~(first.isfinite() & last.isfinite())
        self._accumulate(last.masked_fill(undefined, torch.nan))
        self.baseline_sum = self.baseline_sum + first.masked_fill(undefined, 0).sum()

    def _additions(self) -> dict[str, Any]:
        baseline = self.baseline_sum / self.image_count
        return {"baseline": float(baseline), "lift": float(self.value_sum / self.image_count - baseline)}


def _spread(values: Tensor) -> Tensor:
    """Standard deviation over the first axis; NaN of a single value."""
    return values.std(dim=0) if len(values) > 1 else values[0] * torch.nan


_STORED: dict[str | None, tuple[str, ...]] = {None: ("own_values",), "percentiles": ("percentiles",), "binary": ()}
_AREA_MISREAD = {
    "": "A model without errors scores 1 and has nothing to correct: read the `lift`. Areas over different numbers of "
    "groups are not comparable.",
    "_uncertainty": "One order per image; confident errors are corrected late.",
    "_single": "Steps are single concepts: not comparable with groups.",
    "_binary": "A head that reads logits has not learnt what 0 and 1 mean.",
    "_percentiles": "The percentiles come from training images, on which a model is more confident than on others.",
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
            source="[K20] 3" + ", order [S23]" * how.uncertain_first,
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
            misread="It is the accuracy of the head on true concepts, independent of the image.",
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
