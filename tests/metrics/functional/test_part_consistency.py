import math

import pytest
import torch

from metrics.functional import part_consistency

NAN = math.nan


def approx(values):
    return pytest.approx(values, nan_ok=True)


class TestPartConsistency:
    def test_hand_cases(self):
        hits, visible = torch.tensor([[7, 1], [3, 2], [0, 0]]), torch.tensor([[8, 4], [4, 3], [0, 0]])
        assert part_consistency(hits, visible).tolist() == approx([1, 0, NAN])

    def test_the_threshold_is_inclusive(self):
        for count in range(5, 200, 5):
            four_fifths = torch.tensor([[4 * count // 5]])
            assert part_consistency(four_fifths, torch.tensor([[count]])).tolist() == [1]
            assert part_consistency(four_fifths - 1, torch.tensor([[count]])).tolist() == [0]
        assert part_consistency(torch.tensor([[3]]), torch.tensor([[4]]), threshold=0.75).tolist() == [1]

    def test_slow_oracle(self):
        for seed in range(3):
            generator = torch.Generator().manual_seed(seed)
            visible = torch.randint(0, 4, (20, 3), generator=generator)
            hits = (torch.rand(20, 3, generator=generator) * (visible + 1)).long()
            expected = []
            for row, seen in zip(hits.tolist(), visible.tolist(), strict=True):
                shares = [h / v for h, v in zip(row, seen, strict=True) if v]
                expected.append(float(max(shares) >= 0.6) if shares else NAN)
            assert part_consistency(hits, visible, 0.6).tolist() == approx(expected)

    def test_errors(self):
        with pytest.raises(ValueError, match="`hits` to be of shape"):
            part_consistency(torch.ones(2, 2), torch.ones(2, 2).long())
        with pytest.raises(ValueError, match="`visible` to be of shape"):
            part_consistency(torch.ones(2, 2).long(), torch.ones(2, 3).long())
