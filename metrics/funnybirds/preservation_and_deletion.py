"""Whether the important parts keep the prediction alone, and whether it changes without them."""

from __future__ import annotations

import torch
from torch import Tensor

from protometry.metrics.entry import Words
from protometry.metrics.funnybirds.threshold_mean import ThresholdMean
from protometry.metrics.primitives.checks import check_tensor


def subset_codes(kept: Tensor) -> Tensor:
    """The numbers ``(...)`` int64 of subsets of N ≤ 62 parts, ``(..., N)`` bool: the sum of 2^j over their parts j.

    Example:
        >>> subset_codes(torch.tensor([True, False, True]))
        tensor(5)
    """
    if kept.ndim < 1 or kept.dtype != torch.bool:
        raise ValueError(
            f"Expected argument `kept` to be of shape (..., N) and dtype bool, but got {tuple(kept.shape)} "
            f"{kept.dtype}."
        )
    return (kept.long() << torch.arange(kept.shape[-1], device=kept.device)).sum(dim=-1)


def preservation_check(predicted_parts: Tensor, kept_predictions: Tensor, predictions: Tensor) -> Tensor:
    """Whether the important parts alone keep the prediction (PC).

    Source: Hesse et al. (2023): ``1[argmax f(x ∖ (parts − P_t)) = argmax f(x)]``.

    Args:
        predicted_parts: ``(B, T, N)`` bool, important parts P_t of the explanation of the predicted class.
        kept_predictions: ``(B, 2^N)`` int64, prediction for every subset of parts kept, by :func:`subset_codes`;
            negative where it is not known.
        predictions: ``(B,)`` int64, of the whole image.

    Returns:
        ``(B, T)`` float64, 0 or 1, higher is better; NaN where the prediction is not known.
    """
    return _agrees(predicted_parts, kept_predictions, predictions)


def deletion_check(predicted_parts: Tensor, kept_predictions: Tensor, predictions: Tensor) -> Tensor:
    """Whether removing the important parts changes the prediction (DC).

    Source: Hesse et al. (2023): ``1[argmax f(x ∖ P_t) ≠ argmax f(x)]``. Arguments, result and errors as for
    :func:`preservation_check`.

    Example:
        >>> parts = torch.tensor([[[True, False], [False, False]]])
        >>> deletion_check(parts, torch.tensor([[9, 4, 9, 4]]), torch.tensor([4])).tolist()
        [[1.0, 0.0]]
    """
    return 1 - _agrees(predicted_parts, kept_predictions, predictions, removed=True)


def _agrees(predicted_parts: Tensor, kept_predictions: Tensor, predictions: Tensor, removed: bool = False) -> Tensor:
    """``(B, T)`` float64, whether the prediction with these parts kept, or removed, is the image's; NaN if unknown."""
    check_tensor("predicted_parts", predicted_parts, ("B", "T", "N"), "bool")
    images, _, parts = predicted_parts.shape
    kept = ~predicted_parts if removed else predicted_parts
    check_tensor("kept_predictions", kept_predictions, (images, 2**parts), "int64")
    check_tensor("predictions", predictions, (images,), "int64")
    then = kept_predictions.gather(1, subset_codes(kept))
    return (then == predictions[:, None]).double().masked_fill(then < 0, torch.nan)


class PredictionCheck(ThresholdMean):
    """Share of images that pass a check of the prediction of some of their parts.

    Attributes:
        kernel: ``(B, T)`` values of a subclass, 0 or 1.
    """

    interval = "wilson"
    kernel: staticmethod[[Tensor, Tensor, Tensor], Tensor]

    def update(
        self, predicted_parts: Tensor, kept_predictions: Tensor, predictions: Tensor, sample_ids: Tensor
    ) -> None:
        self._accumulate(self.kernel(predicted_parts, kept_predictions, predictions), sample_ids)


class PreservationCheck(PredictionCheck):
    """Share of images whose important parts alone keep the prediction (PC, higher is better).

    Example:
        >>> metric, parts = PreservationCheck(num_thresholds=2), torch.tensor([[[True, False], [False, False]]])
        >>> metric.update(parts, torch.tensor([[9, 4, 9, 4]]), torch.tensor([4]), torch.tensor([0]))
        >>> metric.compute()
        tensor([1., 0.], dtype=torch.float64)
    """

    kernel = staticmethod(preservation_check)


class DeletionCheck(PredictionCheck):
    """Share of images whose prediction changes without the important parts (DC, higher is better)."""

    kernel = staticmethod(deletion_check)


PC_WORDS = Words(
    question="Does the decision stay when only the important parts are left?",
    name="Preservation check",
    formula="share of images with the same argmax once all parts but P(ŷ) are removed",
    source="[H23a]",
    misread="Declaring everything important scores 1.",
)
DC_WORDS = Words(
    question="Does the decision change when the important parts are removed?",
    name="Deletion check",
    formula="share of images with another argmax once P(ŷ) is removed",
    source="[H23a]",
    misread="Impossible for the class predicted for a bird without parts.",
)
