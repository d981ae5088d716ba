"""What removing parts does."""

import math

import pytest
import torch

from protometry.metrics import SingleDeletion
from protometry.metrics.functional import deletion_check, preservation_check, single_deletion, subset_codes
from tests.metrics.funnybirds.birds import draws, equal, normal
from tests.metrics.tester import NAN, Case, MetricTests, mean, nowhere_finite


def test_subset_codes():
    every = torch.tensor([[bool(code >> j & 1) for j in range(5)] for code in range(32)])
    assert subset_codes(every).tolist() == list(range(32))
    assert subset_codes(torch.tensor([True, False, True])).item() == 5


def test_predictions_by_hand():
    parts, kept = torch.tensor([[[True, False], [False, False]]]), torch.tensor([[9, 4, 9, 4]])
    for check in (preservation_check, deletion_check):
        equal(check(parts, kept, torch.tensor([4])), [[1, 0]])
    kept[0, 0] = -1  # never shown: P = {} keeps nothing
    equal(preservation_check(parts, kept, torch.tensor([4])), [[1, NAN]])


def test_all_parts_keep_the_prediction_and_no_parts_change_it():
    kept, predictions = torch.tensor([[5, 9, 9, 4]]), torch.tensor([4])
    for important in (True, False):
        parts = torch.full((1, 1, 2), important)
        for check in (preservation_check, deletion_check):
            assert check(parts, kept, predictions).item() == float(important)


def slow_spearman(x, y):
    ranks = [[sum(o < v for o in side) + (sum(o == v for o in side) + 1) / 2 for v in side] for side in (x, y)]
    centred = [[rank - (len(side) + 1) / 2 for rank in side] for side in ranks]
    size = math.sqrt(math.prod(sum(r * r for r in side) for side in centred))
    return sum(a * b for a, b in zip(*centred, strict=True)) / size if size else NAN


def test_single_deletion():
    importance = torch.tensor([[5.0, 1, 4, 0, 2], [1, 2, 3, 4, 5], [1, 1, 1, 1, 1], [NAN, 1, 2, 3, 4]])
    drops = torch.tensor([[3.0, 1, 2, 0, 0], [5, 4, 3, 2, 1], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5]])
    assert single_deletion(importance, drops)[0].item() == pytest.approx(0.910391, abs=1e-6)
    equal(single_deletion(importance, drops)[1:], [0, NAN, NAN])
    assert single_deletion(drops[:3], drops[:3]).tolist() == [1, 1, 1]
    x, y = (torch.randint(-2, 4, (200, 5), generator=draws(seed)).float() for seed in (1, 2))
    equal(single_deletion(x, y), [(1 + slow_spearman(a, b)) / 2 for a, b in zip(x.tolist(), y.tolist(), strict=True)])
    assert torch.equal(single_deletion(x.exp(), y * 3 - 7).isnan(), single_deletion(x, y).isnan())


def test_random_importance_scores_half():
    values = single_deletion(normal(0, 4000, 5), normal(1, 4000, 5))
    assert abs(values.mean() - 0.5) < 3 * values.std() / math.sqrt(4000)


def deletion_record():
    drops = normal(5, 13, 5).round()
    drops[1] = 0
    return {"label_importance": normal(4, 13, 5), "part_drops": drops}


def slow_deletion(record):
    pairs = zip(*(value.tolist() for value in record.values()), strict=True)
    return mean([(1 + slow_spearman(*pair)) / 2 for pair in pairs])


class TestSingleDeletion(MetricTests):
    record = deletion_record()
    cases = {"sd": Case(SingleDeletion, record, slow_deletion, nowhere_finite(record), 13)}
