"""The checks of FunnyBirds (Hesse et al. 2023) at every threshold: what removing important parts does."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from metrics.base import Interval
from metrics.funnybirds.completeness import (
    controlled_synthetic_data_check,
    deletion_check,
    distractibility,
    preservation_check,
)
from metrics.funnybirds.threshold_mean import ThresholdMean
from metrics.primitives.checks import check_tensor


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
