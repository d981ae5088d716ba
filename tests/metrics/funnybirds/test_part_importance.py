"""Attribution summed over the dilated masks of the instances of a part."""

import pytest
import torch

from protometry.metrics.functional import important_parts, part_dilation, part_importance
from tests.metrics.funnybirds.birds import T, equal, scene
from tests.metrics.tester import DTYPES, NAN


def test_importance_by_hand():
    attribution, masks = torch.zeros(1, 8, 8), torch.zeros(1, 3, 8, 8, dtype=torch.bool)
    attribution[0, 2, 2], attribution[0, 5, 5] = 1, 2
    masks[0, 0, 3, 3] = masks[0, 1, 4, 4] = masks[0, 2, 7, 7] = True
    part = torch.tensor([[0, 0, 1]])
    for dilation, expected in ((5, [[6, 2]]), (3, [[3, 0]]), (1, [[0, 0]])):
        equal(part_importance(attribution, masks, part, 2, dilation), expected)
    sides = {1: 1, 64: 1, 153: 1, 154: 3, 224: 3, 255: 3, 256: 5, 358: 5, 359: 7}
    assert {height: part_dilation(height) for height in sides} == sides


@pytest.mark.parametrize("dtype", DTYPES)
def test_importance_oracle(dtype):
    attribution, masks, part = scene(1)
    attribution = attribution.to(dtype)
    masks[2, 0, 0, 0] = masks[2, 0, 8, 6] = True  # at the border
    for dilation in (1, 3, 5):
        reach = dilation // 2
        expected = [[0.0] * 4 for _ in part]
        for b, i, y, x in ((b, i, y, x) for b in range(5) for i in range(4) for y in range(9) for x in range(7)):
            near = masks[b, i, max(0, y - reach) : y + reach + 1, max(0, x - reach) : x + reach + 1]
            if near.any():
                expected[b][part[b, i]] += attribution[b, y, x].item()  # the last column is padding
        actual = part_importance(attribution.transpose(1, 2).contiguous().transpose(1, 2), masks, part, 3, dilation)
        equal(actual, [row[:3] for row in expected])
        split = [part_importance(*(t[b : b + 1] for t in (attribution, masks, part)), 3, dilation) for b in range(5)]
        assert torch.equal(torch.cat(split), actual)


def test_importance_that_is_undefined_and_empty_batches():
    attribution, masks, part = scene(2)
    attribution[3, 0, 0] = NAN  # in no mask, and yet the map is broken
    masks[3, :, 0, 0] = False
    assert part_importance(attribution, masks, part, 3, 1).isnan().all(dim=1).tolist() == [False] * 3 + [True, False]
    with pytest.raises(ValueError, match="`importance` and `total` to be finite, but got NaN or infinity"):
        important_parts(part_importance(attribution, masks, part, 3), attribution.sum((1, 2)), T)
    assert part_importance(attribution[:0], masks[:0], part[:0], 3).shape == (0, 3)
    assert not part_importance(attribution[:1], masks[:1, :0], part[:1, :0], 3).any()
