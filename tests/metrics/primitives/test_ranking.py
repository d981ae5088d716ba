import math

import pytest
import torch

from protometry.metrics.functional import gather_units, top_units, unit_ranks
from tests.metrics.change.changes import slow_rank
from tests.metrics.tester import DTYPES


def random_case(seed, dtype, batch=5, units=7):
    """Scores with many ties and about two thirds of the units active."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(-2, 3, (batch, units), generator=generator).to(dtype)
    return scores, torch.rand(units, generator=generator) < 0.67


def slow_top_units(scores, k, active):
    chosen = []
    for row in scores.tolist():
        units = [unit for unit in range(len(row)) if active[unit]]
        chosen.append(sorted(units, key=lambda unit: (-row[unit], unit))[:k])
    return chosen


class TestTopUnits:
    def test_default_is_five(self):
        assert top_units(torch.arange(8.0)[None]).tolist() == [[7, 6, 5, 4, 3]]

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_slow_oracle(self, dtype):
        for seed in range(4):
            scores, active = random_case(seed, dtype)
            for k in (1, 3, 20):
                result = top_units(scores, k, active)
                assert (result.dtype, result.tolist()) == (torch.int64, slow_top_units(scores, k, active.tolist()))

    def test_fewer_active_than_k(self):
        active = torch.tensor([False, True, False])
        assert top_units(torch.zeros(2, 3), 5, active).tolist() == [[1], [1]]
        assert top_units(torch.zeros(2, 3), 5, torch.zeros(3, dtype=torch.bool)).shape == (2, 0)

    def test_many_ties_keep_the_order(self):
        assert top_units(torch.zeros(1, 500), 500).tolist() == [list(range(500))]

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    def test_not_finite_is_an_empty_slot(self, bad):
        scores = torch.tensor([[1.0, bad, 0.0], [1.0, 2.0, 0.0]])
        assert top_units(scores, 2).tolist() == [[-1, -1], [1, 0]]
        assert top_units(scores, 2, torch.tensor([True, False, True])).tolist() == [[0, 2], [0, 2]]

    def test_empty_batch_and_layout(self):
        assert top_units(torch.zeros(0, 4), 2).shape == (0, 2)
        scores, active = random_case(0, torch.float32)
        assert torch.equal(top_units(scores.T.contiguous().T, 3, active), top_units(scores, 3, active))


class TestGatherUnits:
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_maps(self, dtype):
        maps = torch.arange(2 * 3 * 2 * 2).view(2, 3, 2, 2).to(dtype)
        gathered = gather_units(maps, torch.tensor([[2, 0], [-1, 1]]))
        assert gathered.dtype == dtype
        assert gathered.shape == (2, 2, 2, 2)
        assert gathered[0].tolist() == [[[8, 9], [10, 11]], [[0, 1], [2, 3]]]
        assert gathered[1, 0].isnan().all()
        assert gathered[1, 1].tolist() == [[16, 17], [18, 19]]

    def test_scores_and_integers(self):
        assert gather_units(torch.tensor([[1.0, 2.0]]), torch.tensor([[1, 1, 0]])).tolist() == [[2, 2, 1]]
        assert gather_units(torch.tensor([[1, 2]]), torch.tensor([[1]])).tolist() == [[2]]
        assert gather_units(torch.zeros(0, 4, 3, 3), torch.zeros(0, 2, dtype=torch.int64)).shape == (0, 2, 3, 3)


class TestUnitRanks:
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_slow_oracle(self, dtype):
        for seed in range(4):
            scores, active = random_case(seed, dtype)
            unit_ids = top_units(scores, 3, active)
            expected = [
                [slow_rank(row, unit, active.tolist()) for unit in ids]
                for row, ids in zip(scores.tolist(), unit_ids.tolist(), strict=True)
            ]
            ranks = unit_ranks(scores, unit_ids, active)
            assert (ranks.dtype, ranks.tolist()) == (torch.int64, expected)
            per_slot = torch.stack([scores.roll(slot, dims=1) for slot in range(unit_ids.shape[1])], dim=1)
            expected = [
                [slow_rank(slots[slot], unit, active.tolist()) for slot, unit in enumerate(ids)]
                for slots, ids in zip(per_slot.tolist(), unit_ids.tolist(), strict=True)
            ]
            assert unit_ranks(per_slot, unit_ids, active).tolist() == expected

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    def test_undefined_is_minus_one(self, bad):
        scores = torch.tensor([[1.0, bad, 0.0], [1.0, 2.0, 0.0]])
        ids = torch.tensor([[0, 2], [0, -1]])
        assert unit_ranks(scores, ids).tolist() == [[-1, -1], [1, -1]]
        active = torch.tensor([True, False, True])
        assert unit_ranks(scores, ids, active).tolist() == [[0, 1], [0, -1]]
        assert unit_ranks(scores, torch.tensor([[1], [1]]), active).tolist() == [[-1], [0]]

    def test_empty_batch(self):
        assert unit_ranks(torch.zeros(0, 3), torch.zeros(0, 2, dtype=torch.int64)).shape == (0, 2)
