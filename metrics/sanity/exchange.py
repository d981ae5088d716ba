"""Exchange: what decisions owe to what the prototypes show."""

from __future__ import annotations

import torch
from torch import Tensor

from protometry.metrics.base import ImageMean
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_tensor
from protometry.metrics.sanity.against_control import AgainstControl


def _decided(logits: Tensor, classes: Tensor) -> Tensor:
    """``(B,)`` float64, 1 where the largest logit is that of the class; NaN where a logit is not finite."""
    right = (logits.argmax(dim=1) == classes).double()
    return right.masked_fill(~logits.isfinite().all(dim=1), torch.nan)


class ExchangedAccuracy(AgainstControl):
    """Share of images that are still classified correctly with foreign patches instead of prototypes (lower is better).

    The control, ``own``, is the share with the prototypes of the model and a last layer fitted to them in the same way.

    Inputs:
        exchanged_logits: ``(B, K)`` float, with foreign patches.
        refitted_logits: ``(B, K)`` float, with the model's own prototypes.
    """

    unit = "fraction"
    higher_is_better = False
    control = "own"
    interval = "wilson"

    def update(self, exchanged_logits: Tensor, refitted_logits: Tensor, labels: Tensor) -> None:
        check_tensor("exchanged_logits", exchanged_logits, ("B", "K"), "float")
        check_tensor("refitted_logits", refitted_logits, tuple(exchanged_logits.shape), "float")
        check_tensor("labels", labels, (len(exchanged_logits),), "int64")
        self._compare(*(_decided(logits, labels)[:, None] for logits in (exchanged_logits, refitted_logits)))


class ExchangedAgreement(ImageMean):
    """Share of images for which foreign patches lead to the same decision as the prototypes (lower is better).

    Inputs:
        exchanged_logits: ``(B, K)`` float, with foreign patches.
        refitted_logits: ``(B, K)`` float, with the model's own prototypes.
    """

    unit = "fraction"
    higher_is_better = False
    interval = "wilson"

    def update(self, exchanged_logits: Tensor, refitted_logits: Tensor) -> None:
        check_tensor("exchanged_logits", exchanged_logits, ("B", "K"), "float")
        check_tensor("refitted_logits", refitted_logits, tuple(exchanged_logits.shape), "float")
        same = _decided(exchanged_logits, refitted_logits.argmax(dim=1))
        self._accumulate(same.masked_fill(~refitted_logits.isfinite().all(dim=1), torch.nan))


_NEEDS = ("units", "exchange", "single_label", "training")

EXCHANGED_ACCURACY = MetricEntry(
    "sanity/exchanged_accuracy",
    ExchangedAccuracy,
    Words(
        question="Would any other patches do in the place of the prototypes?",
        name="Accuracy with foreign patches",
        formula="accuracy with the patch at a random cell of a random training image in the place of each prototype, "
        "and the last layer fitted again as `fit_head` does; `own` is the accuracy with the model's own prototypes",
        source="[BB25], ours: random patches",
        misread="A high value does not say that the prototypes are wrong, but that the accuracy does not show that "
        "they are right: the backbone alone separates the classes. Read `lift_over_own`.",
        finding="With foreign patches as its prototypes, the model still classifies {value} of the images correctly.",
    ),
    needs=_NEEDS,
    view="exchanged",
)

EXCHANGED_AGREEMENT = MetricEntry(
    "sanity/exchanged_agreement",
    ExchangedAgreement,
    Words(
        question="How many decisions would stay the same with any other patches?",
        name="Agreement with foreign patches",
        formula="share of images for which both decide for the same class",
        source="[BB25], ours: random patches",
        misread="Two accurate models agree whatever they compare images with.",
    ),
    needs=_NEEDS,
    view="exchanged",
)
