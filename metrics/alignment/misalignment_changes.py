"""Changes of a unit, and of the decision, where the image changes outside the unit's region only."""

from __future__ import annotations

import torch
from torch import Tensor

from protometry.metrics.general.accuracy import accuracy, subset_accuracy
from protometry.metrics.primitives.checks import check_ids, check_labels, check_tensor
from protometry.metrics.primitives.intersection_over_union import mask_intersection_over_union
from protometry.metrics.primitives.regions import percentile_mask
from protometry.metrics.primitives.truth import check_truth


def _check_scores(scores: Tensor, perturbed_scores: Tensor, target_ids: Tensor) -> None:
    check_tensor("scores", scores, ("B", "U"), "float")
    check_tensor("perturbed_scores", perturbed_scores, tuple(scores.shape), "float")
    check_ids("target_ids", target_ids, (len(scores),), scores.shape[1])


def _positive_scores(scores: Tensor, target_ids: Tensor) -> tuple[Tensor, Tensor]:
    """Scores in float64 clipped at 0, ``(B, U)``, and the targets' scores, ``(B, 1)``."""
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
    owned = (labels != 0).double() @ owner.T.double() > 0 if labels.ndim == 2 else owner.T[labels]  # NaN is not 0
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
    is strictly above the target's, after the perturbation minus before.

    Args:
        scores: ``(B, U)`` float, clean images.
        perturbed_scores: ``(B, U)`` float, images perturbed outside the target's region.
        target_ids: ``(B,)`` int64 unit of each image, -1 for none.
        labels: ``(B,)`` int64 in ``[0, K)``, or ``(B, K)`` bool, where a unit of any true label is owned, or float with
            NaN for an unknown label, whose units are left out.
        owner: ``(U, K)`` bool.
        active: ``(U,)`` bool; None for all.

    Returns:
        ``(B,)`` float64 ranks, lower is better; NaN where a score that takes part is not finite or there is no target.

    Example:
        >>> scores, perturbed = torch.tensor([[2.0, 1.0, 0.5]]), torch.tensor([[0.8, 1.0, 0.9]])
        >>> owner = torch.tensor([[True, False], [False, True], [False, True]])
        >>> misalignment_rank_change(scores, perturbed, torch.tensor([0]), torch.tensor([0]), owner)
        tensor([2.], dtype=torch.float64)
    """
    _check_scores(scores, perturbed_scores, target_ids)
    images, num_units = scores.shape
    check_tensor("owner", owner, (num_units, "K"), "bool")
    if labels.ndim == 2:
        check_truth("labels", labels, (images, owner.shape[1]))
    else:
        check_labels(labels, images, owner.shape[1])
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
        labels: ``(B,)`` int64 in ``[0, K)``, or ``(B, K)`` as for :func:`.subset_accuracy`.

    Returns:
        ``(B,)`` float64, -1, 0 or 1, lower is better; NaN where a logit is not finite.

    Example:
        >>> accuracy_change(torch.tensor([[2.0, 1.0]]), torch.tensor([[0.0, 1.0]]), torch.tensor([0]))
        tensor([1.], dtype=torch.float64)
    """
    check_tensor("perturbed_logits", perturbed_logits, tuple(logits.shape), "float")
    correct = subset_accuracy if labels.ndim == 2 else accuracy
    return correct(logits, labels) - correct(perturbed_logits, labels)
