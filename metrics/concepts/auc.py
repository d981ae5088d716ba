"""Names for units that have none: the concept that a unit's score tells best."""

from __future__ import annotations

import torch
from torch import Tensor

from metrics.primitives.checks import check_tensor


def concept_auc(scores: Tensor, concept_labels: Tensor) -> Tensor:
    """Area under the ROC curve of every unit for every concept.

    Source: Mann and Whitney (1947): the probability that the unit scores higher on an image with the concept than on
    one without, ties counting one half.

    Args:
        scores: ``(N, U)`` float, finite.
        concept_labels: ``(N, L)`` bool.

    Returns:
        ``(U, L)`` float64 in [0, 1]; NaN for a concept that all images have, or none.

    Raises:
        ValueError: if an argument differs from the above.

    Example:
        >>> concept_auc(torch.tensor([[1.0], [2.0], [2.0]]), torch.tensor([[False], [True], [False]]))
        tensor([[0.7500]], dtype=torch.float64)
    """
    check_tensor("scores", scores, ("N", "U"), "float")
    check_tensor("concept_labels", concept_labels, (len(scores), "L"), "bool")
    columns = scores.detach().T.contiguous()
    ordered = columns.sort(dim=1).values
    below, upto = (torch.searchsorted(ordered, columns, right=right) for right in (False, True))
    ranks = (below + upto + 1).double() / 2  # of 1 to N, the mean rank of those that tie
    present = concept_labels.double()
    positive = present.sum(dim=0)
    wins = ranks @ present - positive * (positive + 1) / 2
    return wins / (positive * (len(scores) - positive))


def name_units(auc: Tensor, least: float = 0.6) -> Tensor:
    """The concept that names each unit: that of the largest area under the curve.

    Source: none.

    Args:
        auc: ``(U, L)`` float, see :func:`concept_auc`; NaN names no unit.
        least: the area below which a unit has no name.

    Returns:
        ``(U,)`` int64, ties to the lower index, -1 for a unit without a name.

    Raises:
        ValueError: if an argument differs from the above.

    Example:
        >>> name_units(torch.tensor([[0.9, 0.9], [0.5, 0.55]]))
        tensor([ 0, -1])
    """
    check_tensor("auc", auc, ("U", "L"), "float")
    best = auc.nan_to_num(nan=-1.0).amax(dim=1)
    first = (auc == best[:, None]).int().argmax(dim=1)
    return first.masked_fill(~(best >= least), -1)
