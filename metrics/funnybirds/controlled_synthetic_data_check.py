"""Kernels of FunnyBirds that read the class table alone: which parts decide a class, and which classes to compare."""

from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor

from metrics.funnybirds.important_parts import subset_codes
from metrics.primitives.checks import check_tensor

_SHARED = 2  # parts that a class of a pair has in common with the label


def minimal_sufficient_sets(class_parts: Tensor) -> Tensor:
    """The smallest sets of parts that tell a class from all others.

    Source: Hesse et al. (2023), controlled synthetic data check. A set S is sufficient for class c if no other class
    has the variants of c in all parts of S; it is minimal if no proper subset is sufficient. A class whose twin has all
    of its parts has no such set.

    Args:
        class_parts: ``(K, N)`` int64, the variant of each part in each class.

    Returns:
        ``(K, Q, N)`` bool, by size and then by their first parts; padded with empty sets, at least one set a class.

    Raises:
        ValueError: if ``class_parts`` has another shape or dtype.

    Example:
        >>> minimal_sufficient_sets(torch.tensor([[0, 0, 0], [0, 1, 1], [1, 0, 1]]))[0].int().tolist()
        [[0, 0, 1], [1, 1, 0]]
    """
    check_tensor("class_parts", class_parts, ("K", "N"), "int64")
    classes, parts = class_parts.shape
    chosen = [one for size in range(parts + 1) for one in combinations(range(parts), size)]
    subsets = torch.tensor([[part in one for part in range(parts)] for one in chosen], device=class_parts.device)
    differs = (class_parts[:, None] != class_parts).float() @ subsets.T.float() > 0  # (K, K, subsets)
    itself = torch.eye(classes, dtype=torch.bool, device=class_parts.device)[:, :, None]
    sufficient = (differs | itself).all(dim=1)
    # a superset of a sufficient set is sufficient: it is enough to look at the sets with one part less
    smaller = (subsets[:, None] <= subsets).all(dim=2) & (subsets[:, None].sum(2) + 1 == subsets.sum(1))
    minimal = sufficient & (sufficient.float() @ smaller.float() == 0)
    most = max(1, int(minimal.sum(dim=1).max())) if classes else 1
    found, order = minimal.sort(dim=1, descending=True, stable=True)
    return subsets[order[:, :most]] & found[:, :most, None]


def target_pairs(class_parts: Tensor) -> tuple[Tensor, Tensor]:
    """For each class two others that share two parts each with it, and no part between them.

    Source: Hesse et al. (2023), target sensitivity: the first pair c1 < c2, by index, of classes that have exactly two
    parts in common with the class, with disjoint sets of common parts.

    Args:
        class_parts: ``(K, N)`` int64, the variant of each part in each class.

    Returns:
        ``(K, 2)`` int64, -1 for a class without such a pair, and ``(K, 2, N)`` bool, the common parts of either.

    Raises:
        ValueError: if ``class_parts`` has another shape or dtype.

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
    found = paired.any(dim=1)[:, None]
    pairs = torch.cat([first, second], dim=1).masked_fill(~found, -1)
    rows = torch.arange(classes, device=class_parts.device)[:, None]
    return pairs, same[rows, pairs.clamp(min=0)] & found[:, :, None]


def _first(flags: Tensor) -> Tensor:
    """``(K, 1)`` index of the first True in each row, 0 where there is none."""
    return flags.int().argmax(dim=1, keepdim=True)
