"""Success of a planted shortcut: how many images become the class of the stamp that is pasted into them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_tensor
from protometry.metrics.sanity.against_control import AgainstControl


def shortcut_success(labels: Tensor, predictions: Tensor, stamped_predictions: Tensor, label: int) -> Tensor:
    """Whether a stamp turns the prediction into its class.

    Source: after the backdoors of Gu et al. (2017), whose training images with the trigger have another label than what
    they show; ours keep theirs. Images that are taken for the class without the stamp do not count.

    Args:
        labels: ``(B,)`` int64.
        predictions: ``(B,)`` int64, -1 where the model abstains.
        stamped_predictions: the same with the stamp.
        label: the class of the stamp.

    Returns:
        ``(B,)`` float64, 1 or 0; NaN for images of the class and those predicted as it without the stamp.

    Example:
        >>> shortcut_success(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), label=0)
        tensor([nan, 1., 0.], dtype=torch.float64)
    """
    check_tensor("labels", labels, ("B",), "int64")
    for name, value in (("predictions", predictions), ("stamped_predictions", stamped_predictions)):
        check_tensor(name, value, (len(labels),), "int64")
    own = (labels == label) | (predictions == label)
    return (stamped_predictions == label).double().masked_fill(own, torch.nan)


class ShortcutSuccess(AgainstControl):
    """Share of images that a stamp turns into its class (lower is better).

    Args:
        label: the class of the stamp.

    Inputs:
        predictions: ``(B,)`` int64, -1 where the model abstains.
        stamped_predictions: the same with the stamp.
        plain_predictions: the same with a plain patch in its place, which is the control.
    """

    unit = "fraction"
    undefined = "every image is of the class of the stamp or predicted as it without the stamp"
    higher_is_better = False
    interval = "wilson"
    control = "plain"

    def __init__(self, label: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.label = label

    def update(
        self, labels: Tensor, predictions: Tensor, stamped_predictions: Tensor, plain_predictions: Tensor
    ) -> None:
        shown = (stamped_predictions, plain_predictions)
        self._compare(*(shortcut_success(labels, predictions, each, self.label)[:, None] for each in shown))


SHORTCUT_SUCCESS = MetricEntry(
    "sanity/shortcut_success",
    ShortcutSuccess,
    Words(
        question="How many images does the planted shortcut turn into its class?",
        name="Attack success rate",
        formula="share of the images of other classes, predicted otherwise without the stamp, that are predicted as "
        "its class with it",
        source="after [G17]",
        misread="A model may see the stamp in every image and still follow the rest of it: `sanity/shortcut_units` "
        "tells. A stamp that hides something changes predictions, too: read `lift_over_plain`, over a patch of the "
        "mean colour of the image in its place.",
        finding="The planted stamp turns {value} of the images of other classes into its class.",
    ),
    lambda facts: ShortcutSuccess(facts.stamp.label),
    needs=("stamp", "single_label"),
    view="shortcut",
)
