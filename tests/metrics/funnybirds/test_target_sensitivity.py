"""Pairs of classes to compare, and whether their explanations find their own parts."""

import math
from itertools import combinations

import pytest
import torch

from protometry.metrics import TargetSensitivity
from protometry.metrics.functional import target_pairs, target_sensitivity
from tests.metrics.funnybirds.birds import equal, normal, sets_of, variants
from tests.metrics.tester import NAN, Case, MetricTests, mean, nowhere_finite


@pytest.mark.parametrize("classes", [2, 9, 25])
def test_target_pairs_oracle(classes):
    table = variants(classes, classes)
    rows, (pairs, shared) = table.tolist(), target_pairs(table)
    for y in range(classes):
        common = {c: {j for j in range(5) if rows[c][j] == rows[y][j]} for c in range(classes) if c != y}
        both = [pair for pair in combinations(common, 2) if all(len(common[c]) == 2 for c in pair)]
        first = next((pair for pair in both if not common[pair[0]] & common[pair[1]]), (-1, -1))
        assert (tuple(pairs[y].tolist()), sets_of(shared[y])) == (first, [common.get(c, set()) for c in first])


def test_target_sensitivity_by_hand():
    importance = torch.tensor([[[4.0, 1, 0, 0, 1], [2, 0, 0, 3, 2]]])
    shared = torch.tensor([[[True, True, False, False, False], [False, False, False, True, True]]])
    drops = torch.tensor([[[3.0, 1], [0, 2]]])
    cases = {  # pair_importance, shared_parts, pair_drops
        1: (importance, shared, drops),
        0: (importance.flip(1), shared, drops),
        0.5: (torch.tensor([[[4.0, 1, 0, 3, 2], [2, 0, 0, 3, 2]]]), shared, drops),
    }
    for value, inputs in cases.items():
        equal(target_sensitivity(*inputs), [value])
    for undefined in (
        (importance, shared, torch.tensor([[[3.0, 3], [0, 2]]])),  # equal drops do not tell the classes apart
        (importance, shared, torch.tensor([[[3.0, 1], [2, 0]]])),
        (importance, shared & False, drops),  # no pair
        (importance * NAN, shared, drops),
    ):
        assert target_sensitivity(*undefined).isnan().all()


def test_random_importance_scores_half():
    shared = torch.tensor([[True, True, False, False, False], [False, False, True, True, False]]).expand(4000, 2, 5)
    values = target_sensitivity(normal(0, 4000, 2, 5), shared, torch.eye(2).expand(4000, 2, 2))
    assert abs(values.mean() - 0.5) < 3 * values.std() / math.sqrt(4000)


def target_record():
    shared = torch.tensor([[True, True, False, False, False], [False, False, False, True, True]]).repeat(13, 1, 1)
    shared[3] = False
    drops = normal(7, 13, 2, 2) + 2 * torch.eye(2)
    return {"pair_importance": normal(6, 13, 2, 5), "shared_parts": shared, "pair_drops": drops}


def slow_target(record):
    values = []
    for importance, shared, drops in zip(*(value.tolist() for value in record.values()), strict=True):
        if any(shared[0]) and drops[0][0] > drops[0][1] and drops[1][1] > drops[1][0]:
            of = [[sum(p for p, s in zip(pi, one, strict=True) if s) for one in shared] for pi in importance]
            values.append(((of[0][0] > of[1][0]) + (of[1][1] > of[0][1])) / 2)
    return mean(values)


class TestTargetSensitivity(MetricTests):
    record = target_record()
    cases = {"ts": Case(TargetSensitivity, record, slow_target, nowhere_finite(record), 13)}
