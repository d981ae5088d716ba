"""FunnyBirds (Hesse et al. 2023): importance of parts against what removing them does, one value per image."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from metrics.base import AveragedOver, ImageMean, ImageRatio, Interval
from metrics.entry import MetricEntry, Words
from metrics.funnybirds.completeness import background_independence, single_deletion, target_sensitivity
from metrics.primitives.checks import check_tensor

CLASS_PARTS = ("class_parts", "single_label")
REMOVED = (*CLASS_PARTS, "interventions")
MAPPED = (*REMOVED, "label_map")


class BackgroundIndependence(ImageRatio):
    """Share of the background objects that do not matter to the label (higher is better).

    Source: Hesse et al. (2023). ``1 − #{objects with f(x) − f(x') ≥ ratio · |f(x)| and > 0} / #objects``, with f the
    raw logit of the label and x' the image without the object, over the objects of all images. Images without objects
    and those with a logit that is not finite are left out.

    A property of the model, not of an explanation. A model whose logits have a large offset is always independent: the
    ratio is one of the logit itself.

    Args:
        ratio: share of the logit.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        background_drops: ``(B, M)`` float, drop of the logit of the label without each object.
        label_logits: ``(B,)`` float.
        background_valid: ``(B, M)`` bool, False for padding; M may differ from batch to batch.

    Example:
        >>> import torch
        >>> metric, valid = BackgroundIndependence(), torch.ones(1, 3, dtype=torch.bool)
        >>> metric.update(torch.tensor([[0.5, 0.1, -2.0]]), torch.tensor([10.0]), valid)
        >>> metric.compute()
        tensor(0.6667, dtype=torch.float64)
    """

    name = "bi"
    unit = "fraction"
    value_range = (0.0, 1.0)
    reads = ("background_drops", "label_logits", "background_valid")
    averaged_over: AveragedOver = "object"
    higher_is_better = True

    def __init__(self, ratio: float = 0.05, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.ratio = ratio

    def update(self, background_drops: Tensor, label_logits: Tensor, background_valid: Tensor) -> None:
        """Add a batch."""
        self._accumulate(*background_independence(background_drops, label_logits, background_valid, self.ratio))


class SingleDeletion(ImageMean):
    """Mean rank correlation of the importance of parts with what removing them does (SD, higher is better).

    Source: Opłatek et al. (2024), equation 1, after Hesse et al. (2023). ``1/2 + ρ/2`` with Spearman's ρ over the
    parts. Undefined where the importance or the drops of all parts are equal.

    0.5 is chance, not 0. Parts that are hidden in the image have a drop of 0 and an importance of about 0.

    Inputs:
        label_importance: ``(B, N)`` float, importance of each part in the explanation of the label.
        part_drops: ``(B, N)`` float, drop of the logit of the label without each part.

    Example:
        >>> import torch
        >>> metric = SingleDeletion()
        >>> metric.update(torch.tensor([[5.0, 1.0, 4.0, 0.0, 2.0]]), torch.tensor([[3.0, 1.0, 2.0, 0.0, 0.0]]))
        >>> metric.compute()
        tensor(0.9104, dtype=torch.float64)
    """

    name = "sd"
    unit = "fraction"
    value_range = (0.0, 1.0)
    reads = ("label_importance", "part_drops")
    higher_is_better = True

    def update(self, label_importance: Tensor, part_drops: Tensor) -> None:
        """Add a batch."""
        self._accumulate(single_deletion(label_importance, part_drops))


class TargetSensitivity(ImageMean):
    """Share of explanations of two classes that find the parts that speak for their class (TS, higher is better).

    Source: Hesse et al. (2023), see :func:`metrics.functional.target_sensitivity`. Undefined for a class without a pair
    of classes to compare, and where the model itself does not tell the pair apart.

    0.5 is chance. Few images may be left: see ``n``.

    Inputs:
        pair_importance: ``(B, 2, N)`` float, importance of each part in the explanations of both classes.
        shared_parts: ``(B, 2, N)`` bool, parts each of them shares with the label.
        pair_drops: ``(B, 2, 2)`` float, ``[b, i, j]`` is the drop of the logit of class i without the parts shared by
            j.

    Example:
        >>> import torch
        >>> importance = torch.tensor([[[4.0, 1.0, 0.0, 0.0, 1.0], [2.0, 0.0, 0.0, 3.0, 2.0]]])
        >>> shared = torch.tensor([[[True, True, False, False, False], [False, False, False, True, True]]])
        >>> metric = TargetSensitivity()
        >>> metric.update(importance, shared, torch.tensor([[[3.0, 1.0], [0.0, 2.0]]]))
        >>> metric.compute()
        tensor(1., dtype=torch.float64)
    """

    name = "ts"
    unit = "fraction"
    value_range = (0.0, 1.0)
    reads = ("pair_importance", "shared_parts", "pair_drops")
    higher_is_better = True

    def update(self, pair_importance: Tensor, shared_parts: Tensor, pair_drops: Tensor) -> None:
        """Add a batch."""
        self._accumulate(target_sensitivity(pair_importance, shared_parts, pair_drops))


class HiddenParts(ImageMean):
    """Mean number of parts that were drawn but have no visible pixel (no direction: a fact of the images).

    Source: none. A hidden part has an importance of 0, and removing it changes nothing.

    Inputs:
        present: ``(B, N)`` bool, parts an image was drawn with.
        visible: ``(B, N)`` bool, parts with a pixel in the label map.

    Example:
        >>> import torch
        >>> metric = HiddenParts()
        >>> metric.update(torch.tensor([[True, True, False]]), torch.tensor([[True, False, False]]))
        >>> metric.compute()
        tensor(1., dtype=torch.float64)
    """

    name = "hidden_parts"
    unit = "count"
    value_range = (0.0, math.inf)
    reads = ("present", "visible")
    higher_is_better = None

    def update(self, present: Tensor, visible: Tensor) -> None:
        """Add a batch."""
        check_tensor("present", present, ("B", "N"), "bool")
        check_tensor("visible", visible, tuple(present.shape), "bool")
        self._accumulate((present & ~visible).sum(dim=1).double())


class TotalsNotPositive(ImageMean):
    """Share of explanations whose attribution sums to zero or less (lower is better).

    Source: none. Important parts are those with more than a share of that sum, so that the rule is permissive where it
    is not above 0. Undefined where the sum is not finite.

    Inputs:
        label_totals: ``(B,)`` float, the sum of the explanation of the label.

    Example:
        >>> import torch
        >>> metric = TotalsNotPositive()
        >>> metric.update(torch.tensor([2.0, 0.0, -1.0, 3.0]))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    name = "totals_not_positive"
    unit = "fraction"
    value_range = (0.0, 1.0)
    reads = ("label_totals",)
    interval: Interval = "wilson"
    higher_is_better = False

    def update(self, label_totals: Tensor) -> None:
        """Add a batch."""
        check_tensor("label_totals", label_totals, ("B",), "float")
        self._accumulate((label_totals <= 0).double().masked_fill(~label_totals.isfinite(), math.nan))


BACKGROUND_INDEPENDENCE = MetricEntry(
    "funnybirds/bi",
    BackgroundIndependence,
    Words(
        question="Does the decision stay when objects of the background are removed?",
        name="Background independence",
        formula="1 − #{objects with o_y(x) − o_y(x′) ≥ 5 % of abs(o_y(x)) and > 0} / #objects",
        source="[H23a]",
        misread="A property of the model, not of its explanations; a large offset of the logits makes every model "
        "independent.",
    ),
    needs=REMOVED,
    view="part_removal",
)
HIDDEN_PARTS = MetricEntry(
    "funnybirds/hidden_parts",
    HiddenParts,
    Words(
        question="How many parts of the birds cannot be seen?",
        name="Hidden parts",
        formula="mean number of parts that were drawn and have no visible pixel",
        source="none",
        misread="A fact of the images: such a part has an importance of 0 and nothing to remove.",
    ),
    needs=MAPPED,
    view="part_removal",
)
TOTALS_NOT_POSITIVE = MetricEntry(
    "funnybirds/totals_not_positive",
    TotalsNotPositive,
    Words(
        question="How many explanations have nothing that speaks for the class?",
        name="Totals not positive",
        formula="share of explanations of the label whose sum is ≤ 0",
        source="none",
        misread="There P by share of the sum is permissive; boxes do not go by it.",
    ),
    needs=(*MAPPED, "part_shares"),
    view="part_removal",
)
