"""What all kernels that compare a map with a perturbed one have in common."""

import math

import pytest
import torch

from metrics import functional as kernels
from tests.metrics.change.changes import CHANGES, clipped, maps_of, noisy_maps, slow_values
from tests.rounding import tolerance

NAN = math.nan
# a ratio of two sums over 28 cells, in any order
TOLERANCE = tolerance(100, dtype=torch.float64)


def same(values, expected):
    return torch.allclose(values, expected, rtol=0, atol=TOLERANCE, equal_nan=True)


@pytest.mark.parametrize("kernel", [getattr(kernels, name) for name in CHANGES], ids=CHANGES)
class TestChanges:
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    def test_slow_oracle(self, kernel, dtype):
        for seed in range(3):
            maps, perturbed = maps_of(kernel, seed, dtype)
            values = kernel(maps, perturbed)
            assert values.dtype == torch.float64
            expected = slow_values(CHANGES[kernel.__name__], maps, perturbed)
            assert same(values.flatten(), torch.tensor(expected, dtype=torch.float64))
            defined = values[~values.isnan()]
            assert 0 < len(defined) < values.numel()
            assert (defined >= 0).all()
            assert kernel.__name__ == "prototype_location_change" or (defined <= 1).all()

    def test_no_change_is_exactly_zero_at_any_batch_size(self, kernel):
        maps = maps_of(kernel, 0)[0].repeat(2, 1, 1, 1)[:16]
        for batch in (1, 4, 16):
            values = torch.cat([kernel(part, part.clone()) for part in maps.split(batch)])
            assert values.nansum() == 0
            assert torch.equal(values.isnan(), kernel(maps, maps).isnan())
            assert not values.isnan().all()

    def test_batch_order_layout_and_symmetry(self, kernel):
        maps, perturbed = maps_of(kernel, 1)
        whole = kernel(maps, perturbed)
        for batch in (1, 4, 16):
            parts = [kernel(*part) for part in zip(maps.split(batch), perturbed.split(batch), strict=True)]
            assert same(torch.cat(parts), whole)
        assert same(kernel(maps.flip(0, 1), perturbed.flip(0, 1)), whole.flip(0, 1))
        assert same(kernel(maps.mT.contiguous().mT, perturbed), whole)
        assert same(kernel(perturbed, maps), whole)

    def test_place_matters_except_for_the_change_of_values(self, kernel):
        maps = clipped(noisy_maps(2))
        moved = kernel(maps, maps.flip(-1)).nansum()
        assert (moved == 0) == (kernel.__name__ == "visualization_activation_change")

    @pytest.mark.parametrize("bad", [NAN, math.inf, -math.inf])
    def test_not_finite_is_undefined(self, kernel, bad):
        maps = torch.rand(2, 2, 3, 4, generator=torch.Generator().manual_seed(0))
        broken = maps.clone()
        broken[0, 1, 1, 1] = bad
        for pair in ((broken, maps), (maps, broken)):
            assert kernel(*pair).isnan().flatten().tolist() == [False, True, False, False]

    def test_no_image(self, kernel):
        assert kernel(torch.zeros(0, 3, 4, 5), torch.zeros(0, 3, 4, 5)).shape == (0, 3)
