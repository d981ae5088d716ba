"""The objective of a selection of features as a set function, and a local search on it.

Source: Norrenbrock et al. 2025 (QPM), quadratic program. For a fixed set S of features the best assignment of rows can
be computed, so that the objective is a function of S only. If equal rows are allowed, every class takes its k best
features of S, and all exchanges of a member for another feature can be evaluated at once. This gives an upper bound,
from whose optima the search continues with different rows. Deviation: a local search from several starts instead of a
commercial solver.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from protometry.lightning_modules.heads.feature_assignment import assign

RANDOM_STARTS = (5, 25)  # the fewest and the most
WORK = 2**21  # features times classes times random starts, in between
PROMISING = 128  # other features that a climb tries before it tries all
PAIRED = 20  # members, and features outside, among which pairs are exchanged
TOLERANCE = 1e-9
EMPTY = -4.0  # the fit of an empty slot, below any fit


@dataclass(frozen=True)
class SelectionProblem:
    """max (1000 / (k·K)) Σ_c Σ_{u of c} A[u, c] - Σ_{redundant pairs in S} P[u, v] + Σ_{u in S} b[u], rows different.

    Args:
        fit: ``(F, K)`` A times 1000 / (k·K).
        penalty: ``(F, F)`` P >= 0, symmetric, 0 for pairs that are not redundant.
        bonus: ``(F,)`` b.
        size: n, features to select.
        per_class: k, features of every class.
    """

    fit: Tensor
    penalty: Tensor
    bonus: Tensor
    size: int
    per_class: int

    def value(self, members: Tensor) -> float:
        """The objective of members ``(n,)`` int64 with their best assignment."""
        fit = self.fit[members]
        assignment, _ = assign(fit, self.per_class)
        return float(fit[assignment.T].sum()) + self._of_members(members)

    def bound(self, members: Tensor) -> float:
        """The same if classes may have equal rows, an upper bound."""
        return float(self.fit[members].topk(self.per_class, dim=0).values.sum()) + self._of_members(members)

    def _of_members(self, members: Tensor) -> float:
        return float(self.bonus[members].sum() - self.penalty[members][:, members].sum() / 2)


def permutations(count: int, number: int, seed: int) -> list[Tensor]:
    """Seeded random orders ``(count,)`` int64."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randperm(count, generator=generator) for _ in range(number)]


def search(problem: SelectionProblem, independent: Tensor, seed: int) -> tuple[Tensor, float, int, int]:
    """The best members found from several starts.

    Returns:
        Members ``(n,)``, their value, how many starts lead to the optimum of the bound that they come from, and the
        number of exchanges on the way.
    """
    optima = [local_optimum(problem, start) for start in starting_points(problem, independent, seed)]
    best, value, origin, swaps = independent, -math.inf, math.nan, 0
    known: dict[frozenset[int], float] = {}
    for members, bound, before in sorted(optima, key=lambda optimum: -optimum[1]):
        if bound > value + TOLERANCE and frozenset(members.tolist()) not in known:
            improved, reached, more = _best_by_value(problem, members, known)
            if reached > value + TOLERANCE:
                best, value, origin, swaps = improved, reached, bound, before + more
    return best, value, sum(abs(bound - origin) < 1e-6 for _, bound, _ in optima), swaps


def starting_points(problem: SelectionProblem, independent: Tensor, seed: int) -> list[Tensor]:
    """Members ``(n,)`` to start from: greedy, not redundant (``independent``), the best by themselves, and random."""
    number = max(RANDOM_STARTS[0], min(WORK // problem.fit.numel(), RANDOM_STARTS[1]))
    ranked = (problem.fit.clamp_min(0).sum(1) + problem.bonus).argsort(descending=True, stable=True)
    drawn = [order[: problem.size] for order in permutations(len(problem.bonus), number, seed)]
    return [_greedy(problem), independent, ranked[: problem.size], *drawn]


def _greedy(problem: SelectionProblem) -> Tensor:
    """Members added one by one, each with the largest gain given the earlier ones."""
    best = torch.full_like(problem.fit[: problem.per_class], EMPTY * 1000 / problem.fit.shape[1])
    worth, members = problem.bonus.clone(), []
    for _ in range(problem.size):
        gain = worth + (problem.fit - best[-1]).clamp_min(0).sum(1)
        member = int(gain.argmax())
        members.append(member)
        worth -= problem.penalty[member]
        worth[member] = -torch.inf
        best = torch.cat([best, problem.fit[None, member]]).topk(problem.per_class, dim=0).values
    return torch.tensor(members)


def local_optimum(problem: SelectionProblem, members: Tensor) -> tuple[Tensor, float, int]:
    """A local optimum of the bound: no exchange of one member, or of two of the weakest, improves it.

    Returns:
        Members ``(n,)``, their bound and the number of exchanges.
    """
    swaps = 0
    while True:
        worth = _single_swaps(problem, members)
        promising = worth.amax(0).topk(min(PROMISING, worth.shape[1] - len(members))).indices
        pool = torch.cat([members, promising])
        slots, more = _climb(_restricted(problem, pool), torch.arange(len(members)))
        if more:
            members, swaps = pool[slots], swaps + more
        elif (better := next(_paired_swaps(problem, members, worth, TOLERANCE), None)) is not None:
            members, swaps = better, swaps + 1
        else:
            return members, problem.bound(members), swaps


def _best_by_value(
    problem: SelectionProblem, members: Tensor, known: dict[frozenset[int], float]
) -> tuple[Tensor, float, int]:
    """A local optimum of the value: no exchange of one or two members with the largest bounds improves it.

    Returns:
        Members ``(n,)``, their value and the number of exchanges.
    """

    def value_of(members: Tensor) -> float:
        key = frozenset(members.tolist())
        if key not in known:
            known[key] = problem.value(members)
        return known[key]

    value = value_of(members)
    for swaps in itertools.count():
        worth, least = _single_swaps(problem, members), value - problem.bound(members) + TOLERANCE
        single = (members.index_fill(0, slot, outsider) for slot, outsider in _largest(worth, least))
        exchanged = itertools.chain(single, _paired_swaps(problem, members, worth, least))
        better = next((other for other in exchanged if value_of(other) > value + TOLERANCE), None)
        if better is None:
            return members, value, swaps
        members, value = better, value_of(better)
    raise AssertionError("every exchange raises the value")


def _largest(worth: Tensor, least: float) -> Iterator[tuple[Tensor, int]]:
    """Row and column of the ``PROMISING`` largest entries above ``least``, in descending order."""
    largest = worth.flatten().topk(min(PROMISING, worth.numel()))
    for flat in largest.indices[largest.values > least]:
        yield flat // worth.shape[1], int(flat % worth.shape[1])


def _climb(problem: SelectionProblem, members: Tensor) -> tuple[Tensor, int]:
    """The best exchange of one member, repeated until none helps; also the number of exchanges."""
    for swaps in itertools.count():
        worth = _single_swaps(problem, members)
        slot, outsider = divmod(int(worth.argmax()), worth.shape[1])
        if worth[slot, outsider] <= TOLERANCE:
            return members, swaps
        members = members.index_fill(0, torch.tensor(slot), outsider)
    raise AssertionError("every exchange raises the value")


def _restricted(problem: SelectionProblem, features: Tensor) -> SelectionProblem:
    """The problem with some of its features only."""
    penalty = problem.penalty[features][:, features]
    return replace(problem, fit=problem.fit[features], penalty=penalty, bonus=problem.bonus[features])


def _single_swaps(problem: SelectionProblem, members: Tensor) -> Tensor:
    """``(n, F)`` the gain of exchanging a member for a feature; -inf if the feature is a member.

    With t and t' the k-th and the next fit of a class within S, a class that does not use the member gains
    max(A - t, 0), and one that does gains max(A, t') - A[member].
    """
    fit, penalty = problem.fit, problem.penalty
    top = fit[members].topk(min(problem.per_class + 1, len(members)), dim=0)
    last = top.values[problem.per_class - 1]
    following = (
        top.values[problem.per_class] if len(top.values) > problem.per_class else torch.full_like(last, -torch.inf)
    )
    uses = torch.zeros_like(fit[members]).scatter_(0, top.indices[: problem.per_class], 1.0)
    gain = (fit - last).clamp_min(0)
    worth = uses @ (fit.maximum(following) - gain).T + gain.sum(1) - (uses * fit[members]).sum(1, keepdim=True)
    pairs = penalty[:, members].T
    crowding = pairs.sum(0)
    worth += (crowding - problem.bonus)[members, None] - (crowding - problem.bonus) + pairs
    worth[:, members] = -torch.inf
    return worth


def _paired_swaps(problem: SelectionProblem, members: Tensor, worth: Tensor, least: float) -> Iterator[Tensor]:
    """Members after each of the exchanges of two for two that raise the bound by more than ``least``, the best first.

    Exact among the ``PAIRED`` members with the smallest loss and the other features with the largest gain.
    """
    fit, penalty, bonus, k = problem.fit, problem.penalty, problem.bonus, problem.per_class
    outside = worth.amax(0).topk(min(PAIRED, worth.shape[1] - len(members))).indices
    slots = worth.amax(1).topk(min(PAIRED, len(members))).indices
    if min(len(outside), len(slots), len(members) - 1) < 2 or len(members) - 2 < k:
        return
    out = torch.combinations(slots)  # (P, 2) slots
    new = torch.combinations(outside)  # (Q, 2) features
    best = fit[members].topk(k + 2, dim=0)
    leave = (best.indices == out[:, :, None, None]).any(1)  # (P, k + 2, K)
    top = best.values.masked_fill(leave, -torch.inf).topk(k, dim=1).values  # of the members that stay
    total, last = top.sum((1, 2)), top[:, -1]
    before = top[:, -2] if k > 1 else torch.full_like(last, torch.inf)
    high, low = fit[new].amax(1), fit[new].amin(1)  # (Q, K)
    gain = torch.stack(
        [((high - last[p]).clamp_min(0) + (low - before[p]).clamp_min(0)).sum(1) for p in range(len(out))]
    )
    gone = members[out]  # (P, 2) features
    value = total[:, None] + gain
    crowding = penalty[:, members].sum(1) - bonus
    value += (crowding[gone].sum(1) - penalty[gone[:, 0], gone[:, 1]])[:, None]
    value -= crowding[new].sum(1) + penalty[new[:, 0], new[:, 1]]
    value += penalty[gone[:, :, None, None], new].sum((1, 3))
    for pair, entering in _largest(value - fit[members].topk(k, dim=0).values.sum(), least):
        yield members.scatter(0, out[pair], new[entering])
