"""The selection of features: its objective by hand, its result against all subsets, its constraints, bad sizes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array, csr_array, eye_array, hstack, kron, vstack

from protometry.lightning_modules.heads.feature_assignment import assign
from protometry.lightning_modules.heads.feature_constants import FeatureConstants, FeatureSums
from protometry.lightning_modules.heads.feature_search import SelectionProblem, local_optimum, starting_points
from protometry.lightning_modules.heads.feature_selection import (
    check_sizes,
    find_selection,
    make_problem,
    redundancy_threshold,
)


def constants(features, classes, seed):
    """Random constants in which many features are redundant."""
    generator = torch.Generator().manual_seed(seed)
    fit = torch.rand(features, classes, generator=generator, dtype=torch.float64) * 2 - 1
    fit[::3] = fit[1] + 0.1 * fit[::3]
    unit = torch.nn.functional.normalize(fit, dim=1)
    redundancy = (unit @ unit.T).clamp_min(0).fill_diagonal_(0)
    locality = torch.rand(features, generator=generator, dtype=torch.float64) * 0.6 - 0.3
    none = torch.zeros(features, dtype=torch.float64)
    return FeatureConstants(fit / fit.abs().max(), redundancy, locality, none, none, none.bool())


def test_the_objective_by_hand():
    """Of features 0, 1, 3 class 0 takes 5 + 2, class 1 takes 4 + 3; 0 and 3 are redundant by 0.5; the bonus is 0.6."""
    fit = torch.tensor([[5.0, 3.0], [2.0, 1.0], [9.0, 9.0], [1.0, 4.0]])
    penalty = torch.zeros(4, 4)
    penalty[0, 3] = penalty[3, 0] = 0.5
    problem = SelectionProblem(fit, penalty, torch.tensor([0.1, 0.2, 0.7, 0.3]), size=3, per_class=2)
    assert problem.value(torch.tensor([0, 1, 3])) == pytest.approx(7 + 7 - 0.5 + 0.6)


def test_the_problem_by_hand():
    """A is scaled by 1000 / (k·K); pairs from 0.4 on cost (R - 0.2) / (0.8 - 0.2)."""
    redundancy = torch.tensor([[0.0, 0.2, 0.4], [0.2, 0.0, 0.8], [0.4, 0.8, 0.0]])
    drawn = FeatureConstants(torch.tensor([[0.5], [-1.0], [0.2]]), redundancy, *[torch.zeros(3)] * 4)
    problem = make_problem(drawn, 0.4, size=2, per_class=1, signed=False)
    expected = torch.tensor([[0.0, 0.0, 1 / 3], [0.0, 0.0, 1.0], [1 / 3, 1.0, 0.0]])
    torch.testing.assert_close(problem.penalty, expected)
    assert problem.fit.flatten().tolist() == pytest.approx([500, -1000, 200])
    assert make_problem(drawn, 0.4, 2, 1, signed=True).fit.flatten().tolist() == pytest.approx([500, 1000, 200])


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(("seed", "penalised"), [(0, 1), (1, 1), (2, 400), (3, 400)])
def test_the_best_of_all_subsets(seed, penalised, signed):
    """Where classes may be alike: the search from the first features, also if redundancy outweighs the fit."""
    drawn = constants(12, 10, seed)
    threshold, _ = redundancy_threshold(drawn.redundancy, 5)
    plain = make_problem(drawn, threshold, 5, 2, signed)
    problem = SelectionProblem(plain.fit, plain.penalty * penalised, plain.bonus, 5, 2)
    best = max(problem.bound(torch.tensor(subset)) for subset in itertools.combinations(range(12), 5))
    assert local_optimum(problem, torch.arange(5))[1] == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_best_of_all_subsets_with_classes_that_differ(seed, signed):
    """All six pairs of four features are classes: what telling them apart costs decides which four are best."""
    drawn = constants(7, 6, seed)
    selection = find_selection(drawn, 4, 2, signed)
    problem = make_problem(drawn, selection.threshold, 4, 2, signed)
    best = max(problem.value(torch.tensor(subset)) for subset in itertools.combinations(range(7), 4))
    assert selection.objective == pytest.approx(best, rel=1e-9)
    assert selection.moved > 0


def draw(features, classes, seed, images=10):
    """Constants as images would give them: 24 hidden properties of classes, features that answer to some, and noise."""
    generator = torch.Generator().manual_seed(seed)
    properties = (torch.rand(classes, 24, generator=generator) < 0.3).float()
    answers = torch.randn(24, features, generator=generator) * (torch.rand(24, features, generator=generator) < 0.2)
    labels = torch.arange(classes).repeat_interleave(images)
    values = (properties @ answers)[labels, :, None, None]
    noise = torch.randn(len(labels), features, 2, 2, generator=generator)
    sums = FeatureSums.empty(classes, features, labels.device)
    sums.update((values + noise).relu(), labels)
    return sums.constants()


def solve(problem):
    """Value and upper bound of HiGHS, equal if it has proven its value: s_u for a selected feature, w_uc <= s_u for a
    feature of a class, z >= s_u + s_v - 1 for a redundant pair. Classes may be alike here.
    """
    fit, penalty = problem.fit.numpy(), np.triu(problem.penalty.numpy())
    features, classes = fit.shape
    first, second = np.nonzero(penalty)
    pairs, ways = len(first), features * classes
    everything, nothing = np.ones(features), csr_array((1, ways + pairs))
    select = hstack([csr_array(everything[None]), nothing])
    per_class = hstack(
        [csr_array((classes, features)), kron(everything[None], eye_array(classes)), csr_array((classes, pairs))]
    )
    owned = hstack([kron(eye_array(features), -np.ones((classes, 1))), eye_array(ways), csr_array((ways, pairs))])
    rows, both = np.arange(pairs), np.ones(pairs)
    members = coo_array((both, (rows, first)), (pairs, features)) + coo_array((both, (rows, second)), (pairs, features))
    together = hstack([members, csr_array((pairs, ways)), -eye_array(pairs)])
    low = np.concatenate([[problem.size], np.full(classes, problem.per_class), np.full(ways + pairs, -np.inf)])
    high = np.concatenate([low[: 1 + classes], np.zeros(ways), np.ones(pairs)])
    cost = np.concatenate([-problem.bonus.numpy(), -fit.ravel(), penalty[first, second]])
    solution = milp(
        cost,
        integrality=np.concatenate([everything, np.zeros(ways + pairs)]),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(vstack([select, per_class, owned, together]).tocsc(), low, high),
        options={"mip_rel_gap": 0.0},
    )
    return -solution.fun, -solution.mip_dual_bound


@pytest.mark.parametrize("seed", [0, 1])
def test_the_best_that_a_solver_proves(seed):
    assert_best((40, 20, 10, 3), seed)


def assert_best(sizes, seed):
    features, classes, size, per_class = sizes
    drawn = draw(features, classes, seed)
    threshold, independent = redundancy_threshold(drawn.redundancy, size)
    problem = make_problem(drawn, threshold, size, per_class, signed=False)
    best = max(local_optimum(problem, start)[1] for start in starting_points(problem, independent, seed=0))
    value, bound = solve(problem)
    assert value == pytest.approx(bound)
    assert best == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_the_smallest_threshold(seed):
    redundancy = constants(9, 6, seed).redundancy
    threshold, result = redundancy_threshold(redundancy, 4)
    within = [redundancy[list(s)][:, list(s)].max() for s in itertools.combinations(range(9), 4)]
    levels = redundancy.unique()
    assert threshold == levels[levels > min(within)].min()
    assert redundancy[result][:, result].max() < threshold


@pytest.mark.parametrize(("features", "classes", "per_class"), [(4, 6, 2), (5, 4, 2), (4, 3, 1), (5, 3, 4)])
def test_the_best_of_all_assignments(features, classes, per_class):
    """Of unlike classes, of nearly alike ones, and with ties."""
    rows = list(itertools.combinations(range(features), per_class))
    drawn = torch.rand(features, classes, generator=torch.Generator().manual_seed(features), dtype=torch.float64)
    for fit in (drawn, drawn[:, :1] + 0.1 * drawn, (3 * drawn).round()):
        worth = [[float(fit[list(row), label].sum()) for row in rows] for label in range(classes)]
        ways = itertools.permutations(range(len(rows)), classes)
        best = max(sum(own[row] for own, row in zip(worth, way, strict=True)) for way in ways)
        assignment, _ = assign(fit, per_class)
        assert float(fit[assignment.T].sum()) == pytest.approx(best)
        assert (assignment.sum(1) == per_class).all()
        assert len(assignment.unique(dim=0)) == classes


def test_the_class_that_loses_less_gives_way():
    """Both like 0 best. Class 0 gives it up for 1 and loses 0.1, although it likes 0 more than class 1 does."""
    assignment, moved = assign(torch.tensor([[5.0, 4.0], [4.9, 0.0], [0.0, -9.0]]), 1)
    assert assignment.int().tolist() == [[0, 1, 0], [1, 0, 0]]
    assert moved == 1


@pytest.mark.parametrize(("features", "per_class"), [(5, 2), (6, 3)])
def test_as_many_classes_as_there_are_sets(features, per_class):
    """All like the same features: the last ones have to exchange all of theirs."""
    classes = math.comb(features, per_class)
    assignment, moved = assign(torch.arange(features).double()[:, None].expand(-1, classes), per_class)
    assert len(assignment.unique(dim=0)) == classes == moved + 1
    assert (assignment.sum(1) == per_class).all()


@pytest.mark.parametrize(("sizes", "message"), [
    ((128, 20, 129, 5), "`num_features` to be at least 1 and at most the 128 features there are, but got 129"),
    ((128, 20, 0, 5), "`num_features` to be at least 1 .* but got 0"),
    ((128, 20, 4, 5), "`features_per_class` to be at least 1 and at most `num_features` = 4, but got 5"),
    ((128, 20, 6, 5), r"only 6 sets .*for 20 classes. Set `num_features` to at least 7 or `features_per_class` to 3"),
    ((6, 21, 6, 5), "only 6 sets .* for 21 classes. Choose a backbone with more channels"),
])  # fmt: skip
def test_sizes_that_nothing_satisfies(sizes, message):
    with pytest.raises(ValueError, match=message):
        check_sizes(*sizes)
