"""How a person would correct predicted concepts: which first, and what they become."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from protometry.metrics.primitives.checks import check_range, check_tensor

TRIALS = 5  # random orders of Koh et al. (2020)


@dataclass(frozen=True)
class Correction:
    """How concepts are corrected.

    Args:
        uncertain_first: those closest to a probability of 1/2 first, instead of in random orders.
        single: one concept per step, instead of all that answer one question, such as the colour of a part.
        values: ``"binary"`` or ``"percentiles"``; None for what the model takes by itself.
    """

    uncertain_first: bool = False
    single: bool = False
    values: str | None = None

    @property
    def trials(self) -> int:
        """Orders that are tried."""
        return 1 if self.uncertain_first else TRIALS

    def __str__(self) -> str:
        said = {
            "one by one": self.single,
            "binary values": self.values == "binary",
            "percentiles": self.values == "percentiles",
            "uncertain first": self.uncertain_first,
        }
        return ", ".join(words for words, holds in said.items() if holds)


# ending of keys -> how concepts are corrected
CORRECTIONS: dict[str, Correction] = {
    f"{ending}{'_uncertainty' if first else ''}": Correction(first, ending == "_single", values)
    for ending, values in (("", None), ("_single", None), ("_binary", "binary"), ("_percentiles", "percentiles"))
    for first in (False, True)
}


def group_uncertainty(probabilities: Tensor, groups: Tensor, num_groups: int) -> Tensor:
    """How uncertain the concepts of a group are.

    Source: Shin et al. (2023), uncertainty of concept prediction: the concepts closest to a probability of 1/2 first.
    For groups, ours: the mean of ``-|p - 1/2|`` over their concepts.

    Args:
        probabilities: ``(B, U)`` float in [0, 1].
        groups: ``(U,)`` int64 in ``[0, num_groups)``, -1 for a unit that is never corrected.
        num_groups: G.

    Returns:
        ``(B, G)`` float64 in [-1/2, 0], larger is less certain; NaN for a group without a unit.

    Example:
        >>> group_uncertainty(torch.tensor([[0.5, 0.75, 1.0]]), torch.tensor([0, 0, 1]), 2)
        tensor([[-0.1250, -0.5000]], dtype=torch.float64)
    """
    check_tensor("probabilities", probabilities, ("B", "U"), "float")
    check_range("probabilities", probabilities, 0, 1)
    check_tensor("groups", groups, (probabilities.shape[1],), "int64")
    check_range("groups", groups, -1, num_groups - 1)
    member = (groups[:, None] == torch.arange(num_groups, device=groups.device)).double()
    return -(probabilities.double() - 0.5).abs() @ member / member.sum(dim=0)


def intervention_masks(priority: Tensor, groups: Tensor) -> Tensor:
    """The units that are corrected after each step, a group more per step.

    Args:
        priority: ``(B, T, G)`` float, the order of the groups in T trials: largest first, ties to the lower index.
        groups: ``(U,)`` int64 in ``[0, G)``, -1 for a unit that is never corrected.

    Returns:
        ``(B, T, G, U)`` bool, after 1 to G steps.

    Example:
        >>> intervention_masks(torch.tensor([[[0.1, 0.7]]]), torch.tensor([0, 1, 1, -1]))[0, 0]
        tensor([[False,  True,  True, False],
                [ True,  True,  True, False]])
    """
    check_tensor("priority", priority, ("B", "T", "G"), "float")
    check_tensor("groups", groups, ("U",), "int64")
    check_range("groups", groups, -1, priority.shape[2] - 1)
    order = priority.argsort(dim=2, descending=True, stable=True)
    rank = order.argsort(dim=2)  # of every group, from 0
    corrected_at = rank.index_select(2, groups.clamp(min=0)).masked_fill(groups < 0, priority.shape[2])
    return corrected_at[:, :, None] <= torch.arange(priority.shape[2], device=groups.device)[:, None]
