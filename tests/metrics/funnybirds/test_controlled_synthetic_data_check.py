"""Sets of parts that tell a class, and which share of one is called important."""

from itertools import combinations

import pytest
import torch

from protometry.metrics.functional import controlled_synthetic_data_check, minimal_sufficient_sets
from tests.metrics.funnybirds.birds import TABLE, draws, equal, sets_of, variants
from tests.metrics.tester import NAN


def test_sufficient_sets_by_hand():
    assert sets_of(minimal_sufficient_sets(TABLE)[0]) == [{2}, {0, 1}]
    twins = minimal_sufficient_sets(torch.tensor([[0, 1], [0, 1], [0, 2]]))
    assert (twins[:2].any().item(), sets_of(twins[2])) == (False, [{1}])
    assert not minimal_sufficient_sets(torch.zeros(2, 3, dtype=torch.int64)).any()  # one padded row each


@pytest.mark.parametrize("classes", [2, 9, 25])
def test_sufficient_sets_oracle(classes):
    table = variants(classes, classes)
    rows, parts = table.tolist(), range(5)
    sets = minimal_sufficient_sets(table)
    order = torch.randperm(classes, generator=draws(0))
    assert torch.equal(minimal_sufficient_sets(table[order]), sets[order])
    for y in range(classes):
        enough = [
            set(chosen) for size in range(6) for chosen in combinations(parts, size)
            if all(any(rows[c][j] != rows[y][j] for j in chosen) for c in range(classes) if c != y)
        ]  # fmt: skip
        minimal = [one for one in enough if not any(other < one for other in enough)]
        assert [one for one in sets_of(sets[y]) if one] == minimal


def test_sufficient_parts_by_hand():
    parts = torch.tensor([[[True, False, False], [True, True, False], [False] * 3]]).expand(3, -1, -1)
    labels, predictions = torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1])
    result = controlled_synthetic_data_check(parts, labels, predictions, minimal_sufficient_sets(TABLE))
    equal(result, [[0.5, 1, 0], [NAN] * 3, [0.5, 1, 0]])  # class 1 has {1} and {0, 2}
    twins = minimal_sufficient_sets(torch.zeros(2, 3, dtype=torch.int64))
    assert controlled_synthetic_data_check(parts, labels, labels, twins).isnan().all()


def test_all_parts_hold_every_set_and_no_parts_none():
    table = variants(0, 12)
    labels = torch.arange(12)
    for kept in (True, False):
        parts = torch.full((12, 1, 5), kept)
        result = controlled_synthetic_data_check(parts, labels, labels, minimal_sufficient_sets(table))
        assert set(result[result.isfinite()].tolist()) == {float(kept)}
