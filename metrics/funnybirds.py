"""FunnyBirds (Hesse et al. 2023): what explanations say about parts, and what removing the parts does."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from metrics.base import AveragedOver, ImageMean, ImageRatio, Interval
from metrics.functional.funnybirds import (
    background_independence,
    controlled_synthetic_data_check,
    deletion_check,
    distractibility,
    preservation_check,
    single_deletion,
    target_sensitivity,
)
from metrics.functional.primitives.checks import check_tensor
from metrics.threshold_mean import ThresholdMean


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


class ControlledSyntheticDataCheck(ThresholdMean):
    """Mean share of a sufficient set of parts that is called important (CSDC, higher is better).

    Source: Hesse et al. (2023). ``max_S |S ∩ P_t| / |S|`` over the minimal sufficient sets S of the class, at every
    threshold t, over images that are classified correctly. Undefined for a class without such a set, which has a twin.

    P_t = all parts scores 1.

    Args:
        sufficient_sets: ``(K, Q, N)`` bool, see :func:`metrics.functional.minimal_sufficient_sets`.
        num_thresholds: T.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        label_parts: ``(B, T, N)`` bool, important parts P_t of the explanation of the label.
        labels: ``(B,)`` int64.
        predictions: ``(B,)`` int64.
        sample_ids: ``(B,)`` int64.

    Example:
        >>> import torch
        >>> sets = torch.tensor([[[False, False, True], [True, True, False]]])
        >>> metric, one = ControlledSyntheticDataCheck(sets, num_thresholds=2), torch.tensor([0])
        >>> metric.update(torch.tensor([[[True, True, False], [True, False, False]]]), one, one, one)
        >>> metric.compute()
        tensor([1.0000, 0.5000], dtype=torch.float64)
    """

    name = "csdc"
    reads = ("label_parts", "labels", "predictions", "sample_ids")
    sufficient_sets: Tensor

    def __init__(self, sufficient_sets: Tensor, num_thresholds: int = 80, **kwargs: Any) -> None:
        super().__init__(num_thresholds, **kwargs)
        check_tensor("sufficient_sets", sufficient_sets, ("K", "Q", "N"), "bool")
        self.register_buffer("sufficient_sets", sufficient_sets, persistent=False)

    def update(self, label_parts: Tensor, labels: Tensor, predictions: Tensor, sample_ids: Tensor) -> None:
        """Add a batch."""
        values = controlled_synthetic_data_check(label_parts, labels, predictions, self.sufficient_sets)
        self._accumulate(values, sample_ids)


class PreservationCheck(ThresholdMean):
    """Share of images whose important parts alone keep the prediction (PC, higher is better).

    Source: Hesse et al. (2023). ``1[argmax f(x ∖ (parts − P_t)) = argmax f(x)]`` at every threshold t, over all images.

    P_t = all parts scores 1.

    Inputs:
        predicted_parts: ``(B, T, N)`` bool, important parts P_t of the explanation of the predicted class.
        kept_predictions: ``(B, 2^N)`` int64, prediction for every subset of parts kept, by
            :func:`metrics.functional.subset_codes`; negative where it is not needed.
        predictions: ``(B,)`` int64.
        sample_ids: ``(B,)`` int64.

    Example:
        >>> import torch
        >>> metric, parts = PreservationCheck(num_thresholds=2), torch.tensor([[[True, False], [False, False]]])
        >>> metric.update(parts, torch.tensor([[9, 4, 9, 4]]), torch.tensor([4]), torch.tensor([0]))
        >>> metric.compute()
        tensor([1., 0.], dtype=torch.float64)
    """

    name = "pc"
    reads = ("predicted_parts", "kept_predictions", "predictions", "sample_ids")
    interval: Interval = "wilson"

    def update(
        self, predicted_parts: Tensor, kept_predictions: Tensor, predictions: Tensor, sample_ids: Tensor
    ) -> None:
        """Add a batch."""
        self._accumulate(preservation_check(predicted_parts, kept_predictions, predictions), sample_ids)


class DeletionCheck(ThresholdMean):
    """Share of images whose prediction changes without the important parts (DC, higher is better).

    Source: Hesse et al. (2023). ``1[argmax f(x ∖ P_t) ≠ argmax f(x)]`` at every threshold t, over all images.

    P_t = all parts scores 1 but for the class that is predicted of a bird without any part.

    Inputs:
        predicted_parts: ``(B, T, N)`` bool, important parts P_t of the explanation of the predicted class.
        kept_predictions: ``(B, 2^N)`` int64, as for :class:`PreservationCheck`.
        predictions: ``(B,)`` int64.
        sample_ids: ``(B,)`` int64.

    Example:
        >>> import torch
        >>> metric, parts = DeletionCheck(num_thresholds=2), torch.tensor([[[True, False], [False, False]]])
        >>> metric.update(parts, torch.tensor([[9, 4, 9, 4]]), torch.tensor([4]), torch.tensor([0]))
        >>> metric.compute()
        tensor([1., 0.], dtype=torch.float64)
    """

    name = "dc"
    reads = ("predicted_parts", "kept_predictions", "predictions", "sample_ids")
    interval: Interval = "wilson"

    def update(
        self, predicted_parts: Tensor, kept_predictions: Tensor, predictions: Tensor, sample_ids: Tensor
    ) -> None:
        """Add a batch."""
        self._accumulate(deletion_check(predicted_parts, kept_predictions, predictions), sample_ids)


class Distractibility(ThresholdMean):
    """Mean share of the irrelevant parts and background objects that are not called important (D, higher is better).

    Source: Hesse et al. (2023). ``1 − |P_t ∩ Irr| / |Irr|`` at every threshold t; Irr are the parts and objects whose
    removal lowers the logit of the label by less than 5 % or not at all. Undefined without any.

    P_t = {} scores 1.

    Inputs:
        label_candidates: ``(B, T, C)`` bool, important parts and background objects of the explanation of the label.
        irrelevant: ``(B, C)`` bool, Irr, see :func:`metrics.functional.irrelevant_candidates`; C may differ from batch
            to batch.
        sample_ids: ``(B,)`` int64.

    Example:
        >>> import torch
        >>> metric, parts = Distractibility(num_thresholds=2), torch.tensor([[[True, True], [True, False]]])
        >>> metric.update(parts, torch.tensor([[True, True]]), torch.tensor([0]))
        >>> metric.compute()
        tensor([0.0000, 0.5000], dtype=torch.float64)
    """

    name = "d"
    reads = ("label_candidates", "irrelevant", "sample_ids")

    def update(self, label_candidates: Tensor, irrelevant: Tensor, sample_ids: Tensor) -> None:
        """Add a batch."""
        self._accumulate(distractibility(label_candidates, irrelevant), sample_ids)


class ImportantParts(ThresholdMean):
    """Mean number of important parts, |P_t| (lower is sparser).

    Source: none. To be read beside the completeness checks, which an explanation that calls all parts important passes.

    Inputs:
        predicted_parts: ``(B, T, N)`` bool, important parts P_t of the explanation of the predicted class.
        sample_ids: ``(B,)`` int64.

    Example:
        >>> import torch
        >>> metric, parts = ImportantParts(num_thresholds=2), torch.tensor([[[True, True], [True, False]]])
        >>> metric.update(parts, torch.tensor([0]))
        >>> metric.compute()
        tensor([2., 1.], dtype=torch.float64)
    """

    name = "important_parts"
    unit = "count"
    value_range = (0.0, math.inf)
    reads = ("predicted_parts", "sample_ids")
    higher_is_better = False

    def update(self, predicted_parts: Tensor, sample_ids: Tensor) -> None:
        """Add a batch."""
        check_tensor("predicted_parts", predicted_parts, ("B", self.num_thresholds, "N"), "bool")
        self._accumulate(predicted_parts.sum(dim=2).double(), sample_ids)


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
