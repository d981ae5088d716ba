"""Selection and ranks of the units that explain an image, by the one rule all metrics share."""

from __future__ import annotations

import torch
from torch import Tensor

from protometry.metrics.primitives.checks import check_at_least, check_ids, check_tensor


def top_units(scores: Tensor, k: int = 5, active: Tensor | None = None) -> Tensor:
    """The k active units with the largest score on each image.

    Source: Schlinge et al. (2025), section 5, which evaluates the five most activated prototypes. Ties go to the lower
    index; with fewer than k active units all of them are returned.

    Args:
        scores: ``(B, U)`` float, what the head consumes on the clean image.
        k: number of units, at least 1.
        active: ``(U,)`` bool, units that take part; None for all. Or their ids, int64 in ascending order, with which an
            accelerator need not be asked how many there are.

    Returns:
        ``(B, min(k, active units))`` int64, best first; -1 throughout a row in which an active score is not finite.

    Example:
        >>> active = torch.tensor([True, True, True, True, False])
        >>> top_units(torch.tensor([[1.0, 3.0, 3.0, 2.0, 5.0]]), k=3, active=active)
        tensor([[1, 2, 3]])
    """
    check_at_least("k", k, 1)
    check_tensor("scores", scores, ("B", "U"), "float")
    if active is None:
        candidates = torch.arange(scores.shape[1], device=scores.device)
    elif active.dtype == torch.int64:
        candidates = active
    else:
        check_tensor("active", active, (scores.shape[1],), "bool")
        candidates = active.nonzero().squeeze(1)
    eligible = scores[:, candidates]
    order = eligible.argsort(dim=1, descending=True, stable=True)[:, :k]
    finite = eligible.isfinite().all(dim=1, keepdim=True)
    return candidates[order].masked_fill(~finite, -1)


def gather_units(values: Tensor, unit_ids: Tensor) -> Tensor:
    """The values of the selected units.

    Args:
        values: ``(B, U, ...)``, one entry per unit.
        unit_ids: ``(B, k)`` int64 in ``[0, U)``; negative for an empty slot.

    Returns:
        ``(B, k, ...)`` of the dtype of ``values``; NaN in empty slots.

    Raises:
        TypeError: if a slot is empty but ``values`` has a dtype without NaN.

    Example:
        >>> gather_units(torch.tensor([[10.0, 20.0, 30.0]]), torch.tensor([[2, 0, -1]]))
        tensor([[30., 10., nan]])
    """
    if values.ndim < 2:
        raise ValueError(f"Expected argument `values` to have shape (B, U, ...), but got {tuple(values.shape)}.")
    check_ids("unit_ids", unit_ids, (values.shape[0], "k"), values.shape[1])
    empty = unit_ids < 0
    rows = torch.arange(values.shape[0], device=values.device)[:, None]
    gathered = values[rows, unit_ids.clamp(min=0)]
    if values.is_floating_point():
        return gathered.masked_fill(empty.view(*empty.shape, *[1] * (values.ndim - 2)), torch.nan)
    if empty.any():
        raise TypeError(f"Expected argument `values` to be float where a slot is empty, but got {values.dtype}.")
    return gathered


def check_scores(scores: Tensor, perturbed_scores: Tensor, unit_ids: Tensor) -> None:
    """Refuse scores, clean and perturbed, that do not fit together or to the selected units, with a ``ValueError``."""
    check_tensor("scores", scores, ("B", "U"), "float")
    check_tensor("unit_ids", unit_ids, (len(scores), "k"), "int64")
    slots = () if perturbed_scores.ndim == 2 else (unit_ids.shape[1],)
    check_tensor("perturbed_scores", perturbed_scores, (len(scores), *slots, scores.shape[1]), "float")


def unit_ranks(scores: Tensor, unit_ids: Tensor, active: Tensor | None = None) -> Tensor:
    """The rank of each selected unit: the number of active units with a strictly larger score.

    Equal scores share a rank, so ranks do not depend on the order in which a sort leaves ties.

    Args:
        scores: ``(B, U)`` float, or ``(B, k, U)`` with the scores of one perturbed image per selected unit.
        unit_ids: ``(B, k)`` int64 in ``[0, U)``; negative for an empty slot.
        active: ``(U,)`` bool, units that take part; None for all.

    Returns:
        ``(B, k)`` int64, 0 is best; -1 in empty slots and where the score of the unit or of an active one is not
        finite.

    Example:
        >>> unit_ranks(torch.tensor([[1.0, 3.0, 3.0, 2.0]]), torch.tensor([[1, 2, 3, -1]]))
        tensor([[ 0,  0,  2, -1]])
    """
    check_ids("unit_ids", unit_ids, ("B", "k"), scores.shape[-1])
    per_slot = scores[:, None].expand(-1, unit_ids.shape[1], -1) if scores.ndim == 2 else scores
    check_tensor("scores", per_slot, (*unit_ids.shape, "U"), "float")
    own = per_slot.gather(2, unit_ids.clamp(min=0)[:, :, None])
    larger, ranked = per_slot > own, scores
    if active is not None:
        check_tensor("active", active, (scores.shape[-1],), "bool")
        larger, ranked = larger & active, scores.masked_fill(~active, 0)
    finite = ranked.amin(dim=-1).isfinite() & ranked.amax(dim=-1).isfinite()  # NaN passes through both
    undefined = (unit_ids < 0) | ~finite.view(len(scores), *finite.shape[1:] or (1,)) | ~own.squeeze(2).isfinite()
    return larger.sum(dim=2).masked_fill(undefined, -1)
