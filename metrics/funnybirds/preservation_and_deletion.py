"""Kernels of FunnyBirds: the checks of important parts and of part importance against what removing parts does.

A drop is the raw logit of a class on the image minus that on the image without something, ``f(x) − f(x∖S)``. Source of
all checks: Hesse et al. (2023); what is undefined is NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor

from metrics.funnybirds.important_parts import subset_codes
from metrics.primitives.checks import check_ids, check_tensor


def irrelevant_candidates(drops: Tensor, label_logits: Tensor, ratio: float = 0.05) -> Tensor:
    """Parts and background objects that the model does not use for the label.

    Source: Hesse et al. (2023), distractibility: those whose removal lowers the logit f of the label by less than
    ``ratio · |f|``, or does not lower it at all.

    Args:
        drops: ``(B, C)`` float, drop of the logit of the label without each candidate; NaN where there is none.
        label_logits: ``(B,)`` float.
        ratio: share of the logit.

    Returns:
        ``(B, C)`` bool.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> irrelevant_candidates(torch.tensor([[0.4, 0.6, -3.0, 0.5]]), torch.tensor([10.0])).tolist()
        [[True, False, True, False]]
    """
    check_tensor("drops", drops, ("B", "C"), "float")
    check_tensor("label_logits", label_logits, (len(drops),), "float")
    changes = drops.double()
    return (changes < ratio * label_logits.double().abs()[:, None]) | (changes <= 0)


def background_independence(
    background_drops: Tensor, label_logits: Tensor, background_valid: Tensor, ratio: float = 0.05
) -> tuple[Tensor, Tensor]:
    """How many background objects do not matter to the label.

    Source: Hesse et al. (2023). An object matters if removing it gives ``drop ≥ ratio · |f|`` and ``drop > 0``.

    Args:
        background_drops: ``(B, M)`` float, drop of the logit f of the label without each object.
        label_logits: ``(B,)`` float.
        background_valid: ``(B, M)`` bool, False for padding.
        ratio: share of the logit.

    Returns:
        Independent objects and objects of each image, ``(B,)`` float64 each, higher is better; the first is NaN where a
        logit is not finite.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> drops, valid = torch.tensor([[0.5, 0.1, -2.0]]), torch.ones(1, 3, dtype=torch.bool)
        >>> [counts.item() for counts in background_independence(drops, torch.tensor([10.0]), valid)]
        [2.0, 3.0]
    """
    check_tensor("background_valid", background_valid, tuple(background_drops.shape), "bool")
    independent = irrelevant_candidates(background_drops, label_logits, ratio) & background_valid
    broken = ~background_drops.isfinite() & background_valid
    undefined = broken.any(dim=1) | ~label_logits.isfinite()
    return independent.sum(dim=1).double().masked_fill(undefined, torch.nan), background_valid.sum(dim=1).double()


def controlled_synthetic_data_check(
    label_parts: Tensor, labels: Tensor, predictions: Tensor, sufficient_sets: Tensor
) -> Tensor:
    """Whether the important parts hold a set of parts that is enough to tell the class (CSDC).

    Source: Hesse et al. (2023): ``max_S |S ∩ P_t| / |S|`` over the minimal sufficient sets S of the class.

    Args:
        label_parts: ``(B, T, N)`` bool, important parts P_t of the explanation of the label.
        labels: ``(B,)`` int64 in ``[0, K)``.
        predictions: ``(B,)`` int64.
        sufficient_sets: ``(K, Q, N)`` bool, see :func:`metrics.functional.minimal_sufficient_sets`.

    Returns:
        ``(B, T)`` float64 in [0, 1], higher is better; NaN where the prediction is wrong and for a class without any
        sufficient set.

    Raises:
        ValueError: if a shape or dtype differs from the above or a label is K or more.

    Example:
        >>> sets = torch.tensor([[[False, False, True], [True, True, False]]])
        >>> parts = torch.tensor([[[True, False, False], [True, True, False]]])
        >>> controlled_synthetic_data_check(parts, torch.tensor([0]), torch.tensor([0]), sets).tolist()
        [[0.5, 1.0]]
    """
    check_tensor("label_parts", label_parts, ("B", "T", "N"), "bool")
    images, _, parts = label_parts.shape
    check_tensor("labels", labels, (images,), "int64")
    check_tensor("predictions", predictions, (images,), "int64")
    check_tensor("sufficient_sets", sufficient_sets, ("K", "Q", parts), "bool")
    check_ids("labels", labels, len(sufficient_sets))
    sets = sufficient_sets[labels].double()
    sizes = sets.sum(dim=2)[:, None]
    shares = (label_parts.double() @ sets.transpose(1, 2) / sizes).masked_fill(sizes == 0, -torch.inf)
    best = shares.amax(dim=2)
    return best.masked_fill(best.isinf() | (labels != predictions)[:, None], torch.nan)


def preservation_check(predicted_parts: Tensor, kept_predictions: Tensor, predictions: Tensor) -> Tensor:
    """Whether the important parts alone keep the prediction (PC).

    Source: Hesse et al. (2023): ``1[argmax f(x ∖ (parts − P_t)) = argmax f(x)]``.

    Args:
        predicted_parts: ``(B, T, N)`` bool, important parts P_t of the explanation of the predicted class.
        kept_predictions: ``(B, 2^N)`` int64, prediction for every subset of parts kept, by
            :func:`metrics.functional.subset_codes`; negative where it is not known.
        predictions: ``(B,)`` int64, of the whole image.

    Returns:
        ``(B, T)`` float64, 0 or 1, higher is better; NaN where the prediction is not known.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> parts = torch.tensor([[[True, False], [False, False]]])
        >>> preservation_check(parts, torch.tensor([[9, 4, 9, 4]]), torch.tensor([4])).tolist()
        [[1.0, 0.0]]
    """
    return _agrees(predicted_parts, kept_predictions, predictions)


def deletion_check(predicted_parts: Tensor, kept_predictions: Tensor, predictions: Tensor) -> Tensor:
    """Whether removing the important parts changes the prediction (DC).

    Source: Hesse et al. (2023): ``1[argmax f(x ∖ P_t) ≠ argmax f(x)]``.

    Args:
        predicted_parts: ``(B, T, N)`` bool, important parts P_t of the explanation of the predicted class.
        kept_predictions: ``(B, 2^N)`` int64, as for :func:`preservation_check`.
        predictions: ``(B,)`` int64, of the whole image.

    Returns:
        ``(B, T)`` float64, 0 or 1, higher is better; NaN where the prediction is not known.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> parts = torch.tensor([[[True, False], [False, False]]])
        >>> deletion_check(parts, torch.tensor([[9, 4, 9, 4]]), torch.tensor([4])).tolist()
        [[1.0, 0.0]]
    """
    return 1 - _agrees(~predicted_parts, kept_predictions, predictions)


def distractibility(label_candidates: Tensor, irrelevant: Tensor) -> Tensor:
    """How few of the parts and background objects that do not matter are called important (D).

    Source: Hesse et al. (2023): ``1 − |P_t ∩ Irr| / |Irr|``.

    Args:
        label_candidates: ``(B, T, C)`` bool, important parts and background objects P_t of the explanation of the
            label.
        irrelevant: ``(B, C)`` bool, Irr, see :func:`irrelevant_candidates`.

    Returns:
        ``(B, T)`` float64 in [0, 1], higher is better; NaN where nothing is irrelevant.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> distractibility(torch.tensor([[[True, True, False]]]), torch.tensor([[True, False, True]]))
        tensor([[0.5000]], dtype=torch.float64)
    """
    check_tensor("label_candidates", label_candidates, ("B", "T", "C"), "bool")
    check_tensor("irrelevant", irrelevant, (label_candidates.shape[0], label_candidates.shape[2]), "bool")
    distracted = (label_candidates & irrelevant[:, None]).sum(dim=2)
    return 1 - distracted.double() / irrelevant.sum(dim=1)[:, None]


def single_deletion(label_importance: Tensor, part_drops: Tensor) -> Tensor:
    """Whether the importance of parts is in the order of what removing them does (SD).

    Source: Opłatek et al. (2024), equation 1, after Hesse et al. (2023): ``1/2 + ρ/2`` with Spearman's ρ, by average
    ranks, of the importance and the drops of the parts.

    Args:
        label_importance: ``(B, N)`` float, importance of each part in the explanation of the label.
        part_drops: ``(B, N)`` float, drop of the logit of the label without each part; 0 for a part that is hidden.

    Returns:
        ``(B,)`` float64 in [0, 1], higher is better, 0.5 expected of random importance; NaN where all of one side are
        equal or one is not finite.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> single_deletion(torch.tensor([[5.0, 1.0, 4.0, 0.0, 2.0]]), torch.tensor([[3.0, 1.0, 2.0, 0.0, 0.0]]))
        tensor([0.9104], dtype=torch.float64)
    """
    check_tensor("label_importance", label_importance, ("B", "N"), "float")
    check_tensor("part_drops", part_drops, tuple(label_importance.shape), "float")
    x, y = _centred_ranks(label_importance), _centred_ranks(part_drops)
    correlation = (x * y).sum(dim=1) / (x.square().sum(dim=1) * y.square().sum(dim=1)).sqrt()
    undefined = ~(label_importance.isfinite() & part_drops.isfinite()).all(dim=1)
    return (0.5 + correlation / 2).masked_fill(undefined, torch.nan)


def target_sensitivity(pair_importance: Tensor, shared_parts: Tensor, pair_drops: Tensor) -> Tensor:
    """Whether the explanations of two classes point at the parts that speak for each (TS).

    Source: Hesse et al. (2023). O1 and O2 are the parts that the classes c1 and c2 share with the label. Mean of
    ``1[PI_O1(c1) > PI_O1(c2)]`` and ``1[PI_O2(c2) > PI_O2(c1)]`` with PI_O = Σ_{j in O} PI_j, over images on which the
    model itself tells them apart: f_c1 drops strictly more without O1 than without O2, f_c2 the other way round.

    Args:
        pair_importance: ``(B, 2, N)`` float, importance of each part in the explanations of c1 and c2.
        shared_parts: ``(B, 2, N)`` bool, O1 and O2, see :func:`metrics.functional.target_pairs`.
        pair_drops: ``(B, 2, 2)`` float, ``[b, i, j]`` is the drop of f_ci without O_j.

    Returns:
        ``(B,)`` float64, 0, 0.5 or 1, higher is better, 0.5 expected of random importance; NaN for an image without a
        pair, that the model does not tell apart, or with a value that is not finite.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> importance = torch.tensor([[[4.0, 1.0, 0.0, 0.0, 1.0], [2.0, 0.0, 0.0, 3.0, 2.0]]])
        >>> shared = torch.tensor([[[True, True, False, False, False], [False, False, False, True, True]]])
        >>> target_sensitivity(importance, shared, torch.tensor([[[3.0, 1.0], [0.0, 2.0]]])).item()
        1.0
    """
    check_tensor("pair_importance", pair_importance, ("B", 2, "N"), "float")
    check_tensor("shared_parts", shared_parts, tuple(pair_importance.shape), "bool")
    check_tensor("pair_drops", pair_drops, (len(pair_importance), 2, 2), "float")
    drops, importance = pair_drops.double(), pair_importance.double()
    sums = (importance[:, :, None] * shared_parts[:, None]).sum(dim=3)  # (class explained, parts of class)
    told_apart = (drops[:, 0, 0] > drops[:, 0, 1]) & (drops[:, 1, 1] > drops[:, 1, 0])
    right = (sums[:, 0, 0] > sums[:, 1, 0]).double() + (sums[:, 1, 1] > sums[:, 0, 1]).double()
    finite = drops.isfinite().flatten(1).all(dim=1) & importance.isfinite().flatten(1).all(dim=1)
    defined = told_apart & finite & shared_parts.any(dim=2).all(dim=1)
    return (right / 2).masked_fill(~defined, torch.nan)


def _agrees(kept: Tensor, kept_predictions: Tensor, predictions: Tensor) -> Tensor:
    """``(B, T)`` float64, whether the prediction with only some parts kept is that of the image; NaN if not known."""
    check_tensor("predicted_parts", kept, ("B", "T", "N"), "bool")
    images, _, parts = kept.shape
    check_tensor("kept_predictions", kept_predictions, (images, 2**parts), "int64")
    check_tensor("predictions", predictions, (images,), "int64")
    then = kept_predictions.gather(1, subset_codes(kept))
    return (then == predictions[:, None]).double().masked_fill(then < 0, torch.nan)


def _centred_ranks(values: Tensor) -> Tensor:
    """``(B, N)`` float64 average ranks minus their mean, which no rounding touches: differences of two counts."""
    values = values.double()
    above = values[:, :, None] > values[:, None]
    return (above.sum(dim=2) - above.sum(dim=1)).double() / 2
