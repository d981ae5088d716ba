import math

import pytest
import torch

from metrics.functional import part_stability

NAN = math.nan


def approx(values):
    return pytest.approx(values, nan_ok=True)


class TestPartStability:
    def test_hand_case(self):
        values = part_stability(torch.tensor([3, 0, 5, 0]), torch.tensor([4, 2, 5, 0]))
        assert values.tolist() == approx([0.75, 0, 1, NAN])
        assert values.dtype == torch.float64

    def test_errors(self):
        with pytest.raises(ValueError, match="`unchanged` to be of shape"):
            part_stability(torch.ones(2), torch.ones(2).long())
        with pytest.raises(ValueError, match="`total` to be of shape"):
            part_stability(torch.ones(2).long(), torch.ones(3).long())
