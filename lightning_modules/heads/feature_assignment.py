"""The assignment of k selected features to each class, with no two classes alike.

Source: Norrenbrock et al. 2025 (QPM), whose quadratic program forbids two classes with the same features.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator

import torch
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

Row = tuple[int, ...]  # ascending features


def assign(fit: Tensor, per_class: int) -> tuple[Tensor, int]:
    """The k features of each class that fit best in sum over classes, with no two classes alike.

    A linear assignment of classes to rows. Only a few rows matter: classes that share a row, directly
    or through others, form a group, and a class in a group of g needs only its g best rows, since the others occupy at
    most g - 1 of them.

    Args:
        fit: ``(n, K)`` of the selected features.
        per_class: k, with at least K sets of k out of n features.

    Returns:
        ``(K, n)`` bool, and the number of classes that do not have their best row.
    """
    values, order = fit.T.sort(dim=1, descending=True, stable=True)
    choices: list[list[Row]] = [[tuple(row)] for row in order[:, :per_class].sort(dim=1).values.tolist()]
    ranked = zip(order.tolist(), values.tolist(), strict=True)
    further = [_further_rows(features, worth, per_class) for features, worth in ranked]
    grown = True
    while grown:
        sizes = _group_sizes(choices)
        more = [list(itertools.islice(f, g - len(c))) for f, g, c in zip(further, sizes, choices, strict=True)]
        choices = [have + new for have, new in zip(choices, more, strict=True)]
        grown = any(more)
    index = {row: number for number, row in enumerate(dict.fromkeys(itertools.chain(*choices)))}
    rows = torch.zeros(len(index), len(fit), dtype=torch.bool).scatter_(1, torch.tensor(list(index)), True)
    _, chosen = linear_sum_assignment((rows.to(fit.dtype) @ fit).T.numpy(), maximize=True)
    moved = sum(index[own[0]] != row for own, row in zip(choices, chosen.tolist(), strict=True))
    return rows[torch.from_numpy(chosen)], moved


def _group_sizes(choices: list[list[Row]]) -> list[int]:
    """The number of classes that share a row with a class, directly or through others, including itself."""
    index = {row: number for number, row in enumerate(dict.fromkeys(itertools.chain(*choices)))}
    labels = [label for label, rows in enumerate(choices) for _ in rows]
    numbers = [index[row] for row in itertools.chain(*choices)]
    shared = csr_array(([1.0] * len(labels), (labels, numbers)), shape=(len(choices), len(index)))
    groups = torch.from_numpy(connected_components(shared @ shared.T, directed=False)[1]).long()
    return groups.bincount()[groups].tolist()


def _further_rows(features: list[int], fit: list[float], size: int) -> Iterator[Row]:
    """All sets of ``size`` features but the first of them, the best first; ``features`` are in the order of ``fit``."""
    best = tuple(range(size))
    heap, seen = [(0.0, best)], {best}
    while heap:
        loss, positions = heapq.heappop(heap)
        if positions != best:
            yield tuple(sorted(features[position] for position in positions))
        for slot, position in enumerate(positions):
            after = (*positions[:slot], position + 1, *positions[slot + 1 :])
            if position + 1 < len(fit) and position + 1 not in positions and after not in seen:
                seen.add(after)
                heapq.heappush(heap, (loss + fit[position] - fit[position + 1], after))
