"""Whether the explanation of another class finds the parts of that class."""

from __future__ import annotations

import torch
from torch import Tensor

from protometry.metrics.base import ImageMean
from protometry.metrics.entry import Words
from protometry.metrics.funnybirds.preservation_and_deletion import subset_codes
from protometry.metrics.primitives.checks import check_tensor

_SHARED = 2  # parts that a class of a pair has in common with the label


def target_pairs(class_parts: Tensor) -> tuple[Tensor, Tensor]:
    """For each class two others that share two parts each with it, and no part between them.

    Source: Hesse et al. (2023), target sensitivity: the first pair c1 < c2, by index, of classes that have exactly two
    parts in common with the class, with disjoint sets of common parts.

    Args:
        class_parts: ``(K, N)`` int64, the variant of each part in each class.

    Returns:
        ``(K, 2)`` int64, -1 for a class without such a pair, and ``(K, 2, N)`` bool, the common parts of either.

    Example:
        >>> pairs, shared = target_pairs(torch.tensor([[0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 0, 2], [2, 2, 0, 0]]))
        >>> pairs[0].tolist(), shared[0].int().tolist()
        ([1, 3], [[1, 1, 0, 0], [0, 0, 1, 1]])
    """
    check_tensor("class_parts", class_parts, ("K", "N"), "int64")
    classes, parts = class_parts.shape
    same = class_parts[:, None] == class_parts
    candidate = same.sum(dim=2) == _SHARED  # a class of two parts is one of its own, but nothing pairs with it
    codes = subset_codes(same)
    every = torch.arange(2**parts, device=class_parts.device)
    disjoint = (every[:, None] & every) == 0
    offered = torch.zeros(classes, 2**parts, device=class_parts.device).scatter_reduce_(
        1, codes, candidate.float(), "amax"
    )
    # the first class with any partner is the first of the pair: a partner before it would itself come first
    paired = candidate & (offered @ disjoint.float() > 0).gather(1, codes)
    first = _first(paired)
    second = _first(candidate & disjoint[codes.gather(1, first), codes])
    has_pair = paired.any(dim=1)[:, None]
    pairs = torch.cat([first, second], dim=1).masked_fill(~has_pair, -1)
    rows = torch.arange(classes, device=class_parts.device)[:, None]
    return pairs, same[rows, pairs.clamp(min=0)] & has_pair[:, :, None]


def _first(flags: Tensor) -> Tensor:
    """``(K, 1)`` index of the first True in each row, 0 where there is none."""
    return flags.int().argmax(dim=1, keepdim=True)


def target_sensitivity(pair_importance: Tensor, shared_parts: Tensor, pair_drops: Tensor) -> Tensor:
    """Whether the explanations of two classes point at the parts in favour of each (TS).

    Source: Hesse et al. (2023). O1 and O2 are the parts that the classes c1 and c2 share with the label. Mean of
    ``1[PI_O1(c1) > PI_O1(c2)]`` and ``1[PI_O2(c2) > PI_O2(c1)]`` with PI_O = Σ_{j in O} PI_j, over images on which the
    model itself distinguishes them: f_c1 drops strictly more without O1 than without O2, f_c2 the other way round.

    Args:
        pair_importance: ``(B, 2, N)`` float, importance of each part in the explanations of c1 and c2.
        shared_parts: ``(B, 2, N)`` bool, O1 and O2, see :func:`target_pairs`.
        pair_drops: ``(B, 2, 2)`` float, ``[b, i, j]`` is the drop of f_ci without O_j.

    Returns:
        ``(B,)`` float64, 0, 0.5 or 1, higher is better, 0.5 expected of random importance; NaN for an image without a
        pair, for a pair that the model does not distinguish, or with a value that is not finite.

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
    decided = (drops[:, 0, 0] > drops[:, 0, 1]) & (drops[:, 1, 1] > drops[:, 1, 0])
    right = (sums[:, 0, 0] > sums[:, 1, 0]).double() + (sums[:, 1, 1] > sums[:, 0, 1]).double()
    finite = drops.isfinite().flatten(1).all(dim=1) & importance.isfinite().flatten(1).all(dim=1)
    defined = decided & finite & shared_parts.any(dim=2).all(dim=1)
    return (right / 2).masked_fill(~defined, torch.nan)


class TargetSensitivity(ImageMean):
    """Share of explanations of two classes that find the parts in favour of their class (TS, higher is better)."""

    unit = "fraction"
    higher_is_better = True

    def update(self, pair_importance: Tensor, shared_parts: Tensor, pair_drops: Tensor) -> None:
        self._accumulate(target_sensitivity(pair_importance, shared_parts, pair_drops))


TS_WORDS = Words(
    question="Does the explanation of another class find the parts of that class?",
    name="Target sensitivity",
    formula="share of explanations of two other classes that identify the parts in favour of their class",
    source="[H23a]",
    misread="Chance is 1/2, and few images may be left: read n.",
)
