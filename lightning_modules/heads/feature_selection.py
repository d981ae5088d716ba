"""Selection of n features, and of k of them for each class.

Source: Norrenbrock et al. 2025 (QPM). The set of features comes from
:mod:`protometry.lightning_modules.heads.feature_search`; this module decides which features are redundant.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from protometry.lightning_modules.heads.feature_assignment import assign
from protometry.lightning_modules.heads.feature_constants import TINY, FeatureConstants
from protometry.lightning_modules.heads.feature_search import SelectionProblem, permutations, search

ORDERS = 8  # of the heuristic for independent sets


@dataclass(frozen=True)
class Selection:
    """The features a model keeps.

    Args:
        features: ``(n,)`` int64, ascending.
        assignment: ``(K, n)`` bool, k True in every row, all rows different.
        objective: value of the objective for this assignment.
        threshold: redundancy from which a pair counts.
        starts: starts of the search that ended there.
        swaps: exchanges on the way there.
        moved: classes that do not have their best row, because another class has it.
    """

    features: Tensor
    assignment: Tensor
    objective: float
    threshold: float
    starts: int
    swaps: int
    moved: int


def check_sizes(features: int, classes: int, num_features: int, features_per_class: int) -> None:
    """Refuse sizes that no selection can satisfy.

    Raises:
        ValueError: unless 1 <= k <= n <= F and there are at least K different sets of k out of n features.
    """
    n, k = num_features, features_per_class
    if not 1 <= n <= features:
        raise ValueError(
            f"Expected argument `num_features` to be at least 1 and at most the {features} features there are, "
            f"but got {n}."
        )
    if not 1 <= k <= n:
        raise ValueError(
            f"Expected argument `features_per_class` to be at least 1 and at most `num_features` = {n}, but got {k}."
        )
    if (sets := math.comb(n, k)) < classes:
        enough = next((m for m in range(n, features + 1) if math.comb(m, k) >= classes), None)
        other = [j for j in range(1, n + 1) if math.comb(n, j) >= classes]
        ways = [f"`num_features` to at least {enough}"] if enough else []
        ways += [f"`features_per_class` to {min(other, key=lambda j: abs(j - k))}"] if other else []
        raise ValueError(
            f"Expected every class to have features that no other class has, but there are only {sets} sets of "
            f"`features_per_class` = {k} out of `num_features` = {n} features for {classes} classes. "
            + (f"Set {' or '.join(ways)}." if ways else "Choose a backbone with more channels.")
        )


def find_selection(
    constants: FeatureConstants, num_features: int, features_per_class: int, signed: bool = False, seed: int = 0
) -> Selection:
    """Select features and assign them to classes.

    If ``signed``, a class may be recognised by the absence of a feature: |A| instead of A.

    Raises:
        ValueError: for sizes that no selection satisfies, see :func:`check_sizes`.
    """
    check_sizes(constants.fit.shape[0], constants.fit.shape[1], num_features, features_per_class)
    threshold, independent = redundancy_threshold(constants.redundancy, num_features, seed)
    problem = make_problem(constants, threshold, num_features, features_per_class, signed)
    best, value, starts, swaps = search(problem, independent, seed)
    members = best.sort().values
    assignment, moved = assign(problem.fit[members], features_per_class)
    return Selection(members, assignment, value, threshold, starts, swaps, moved)


def make_problem(
    constants: FeatureConstants, threshold: float, size: int, per_class: int, signed: bool
) -> SelectionProblem:
    """The problem whose redundant pairs have at least ``threshold``, with P = (R - least) / (largest - least).

    The least and the largest are taken over all R above 0.
    """
    fit = constants.fit.abs() if signed else constants.fit
    redundancy = constants.redundancy
    least = redundancy.where(redundancy > 0, torch.inf).min()  # infinity if there is none
    penalty = (redundancy - least) / (redundancy.max() - least).clamp_min(TINY)
    penalty = penalty.where((redundancy > 0) & (redundancy >= threshold), 0.0)
    return SelectionProblem(fit * (1000 / (per_class * fit.shape[1])), penalty, constants.locality, size, per_class)


# -- redundancy ----------------------------------------------------------------------------------------------------
def redundancy_threshold(redundancy: Tensor, size: int, seed: int = 0) -> tuple[float, Tensor]:
    """The smallest redundancy t such that a heuristic finds ``size`` features that are all less redundant than t.

    Returns:
        t (infinity if even the most redundant features would have to be taken) and such features ``(n,)`` int64.
    """
    positive = redundancy[redundancy.triu() > 0]
    levels = torch.cat([positive.sort().values, positive.new_tensor([torch.inf])])
    orders = permutations(len(redundancy), ORDERS, seed)
    low, high = 0, len(levels) - 1
    best = torch.arange(size)
    while low < high:
        middle = (low + high) // 2
        edges = (redundancy >= levels[middle]).float().fill_diagonal_(1)
        independent = _independent_set(edges, size, orders)
        low, high, best = (middle + 1, high, best) if independent is None else (low, middle, independent)
    return float(levels[high]), best


def _independent_set(adjacent: Tensor, size: int, orders: Iterable[Tensor]) -> Tensor | None:
    """``size`` vertices without an edge, found by always taking one with the fewest neighbours left, or None.

    The graph ``(F, F)`` has 1 for an edge and on the diagonal; each order ``(F,)`` breaks ties in its own way.
    """
    count, degrees = len(adjacent), adjacent.sum(1)
    for order in orders:
        degree, left = degrees + order / count, count  # infinite for those that are gone
        taken: list[Tensor] = []
        while len(taken) < size <= len(taken) + left:
            vertex = degree.argmin()
            gone = ((adjacent[vertex] > 0) & (degree < torch.inf)).nonzero().squeeze(1)
            degree.sub_(adjacent.index_select(0, gone).sum(0)).index_fill_(0, gone, torch.inf)
            left -= len(gone)
            taken.append(vertex)
        if len(taken) == size:
            return torch.stack(taken)
    return None
