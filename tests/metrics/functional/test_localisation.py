import math

import pytest
import torch

from metrics.functional import energy_pointing_game, pointing_game, region_intersection_over_union

NAN = math.nan
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
KERNELS = (pointing_game, energy_pointing_game, region_intersection_over_union)
CASE = torch.tensor([[[[1.0, 3.0, 0.0], [1.0, 0.0, -5.0]]]])
MASK = torch.tensor([[[True, False, False], [True, False, False]]])


def slow(values, mask, quantile=0.95):
    """The three values of one map, as flat lists."""
    low, high = min(values), max(values)
    finite = all(map(math.isfinite, values))
    if not finite or high <= 0 or high - low <= 1e-5 * max(abs(low), abs(high)) or all(mask) or not any(mask):
        return NAN, NAN, NAN
    positive = [(max(v, 0), m) for v, m in zip(values, mask, strict=True)]
    place = quantile * (len(values) - 1)
    below, above = (sorted(values)[f(place)] for f in (math.floor, math.ceil))
    cut = below + (above - below) * (place - math.floor(place))
    region = [v > cut for v in values]
    shared = sum(r and m for r, m in zip(region, mask, strict=True))
    union = sum(r or m for r, m in zip(region, mask, strict=True))
    hit = float(mask[values.index(high)])
    return hit, sum(v for v, m in positive if m) / sum(v for v, _ in positive), shared / union


def approx(values):
    return pytest.approx(values, abs=1e-12, nan_ok=True)


def test_hand_case():
    assert pointing_game(CASE, MASK).tolist() == [[0]]
    assert energy_pointing_game(CASE, MASK).tolist() == [[0.4]]  # 2 of 5
    assert region_intersection_over_union(CASE, MASK).tolist() == [[0]]  # the region is the 3
    # sorted -5, 0, 0, 1, 1, 3: the 0.4 quantile is 0, above it the two 1 and the 3; 2 of 3
    assert region_intersection_over_union(CASE, MASK, quantile=0.4).item() == pytest.approx(2 / 3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_slow_oracle(dtype):
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        saliency = torch.randn(6, 3, 5, 7, generator=generator).to(dtype)
        masks = torch.rand(6, 5, 7, generator=generator) < 0.5
        saliency[0, 0], saliency[0, 1], masks[1], masks[2] = 3, -saliency[0, 1].abs(), False, True
        saliency[3, 1, 0, 0], saliency[3, 2, 0, 0] = NAN, math.inf
        expected = [
            slow(values, mask)
            for maps, mask in zip(saliency.double().flatten(2).tolist(), masks.flatten(1).tolist(), strict=True)
            for values in maps
        ]
        for index, kernel in enumerate(KERNELS):
            for strided in (saliency, saliency.transpose(2, 3).contiguous().transpose(2, 3)):
                values = kernel(strided, masks)
                assert values.dtype == torch.float64
                assert values.flatten().tolist() == approx([row[index] for row in expected])


def test_perfect_worst_and_chance():
    inside = MASK[:, None].float()
    assert [kernel(inside, MASK).item() for kernel in KERNELS[:2]] == [1, 1]
    assert region_intersection_over_union(inside, MASK, 0.5).tolist() == [[1]]
    assert [kernel(1 - inside, MASK).item() for kernel in KERNELS[:2]] == [0, 0]
    generator = torch.Generator().manual_seed(0)
    saliency, mask = torch.rand(1, 4000, 4, 4, generator=generator), torch.zeros(1, 4, 4, dtype=torch.bool)
    mask[0, 0] = True  # a quarter of the image
    # 4000 hits with a standard deviation of 0.43 each: 0.03 is 4 standard errors
    assert pointing_game(saliency, mask).mean() == pytest.approx(0.25, abs=0.03)
    assert energy_pointing_game(saliency, mask).mean() == pytest.approx(0.25, abs=0.03)


def test_ties_go_to_the_first_pixel():
    tie = torch.tensor([[[[0.0, 2.0, 2.0], [2.0, 0.0, 0.0]]]])
    assert pointing_game(tie, MASK).tolist() == [[0]]
    assert pointing_game(tie.flip(3), MASK).tolist() == [[1]]


def test_undefined():
    flat, negative = torch.full_like(CASE, 2.0), -CASE.abs()
    ripple = flat + 1e-6 * CASE
    for kernel in KERNELS:
        for saliency in (flat, ripple, negative, torch.zeros_like(CASE)):
            assert kernel(saliency, MASK).isnan().all()
        for mask in (MASK & False, MASK | True):
            assert kernel(CASE, mask).isnan().all()
        assert kernel(CASE[:0], MASK[:0]).shape == (0, 1)


def test_errors():
    for kernel in KERNELS:
        with pytest.raises(ValueError, match="`saliency` to be of shape"):
            kernel(CASE[0], MASK)
        with pytest.raises(ValueError, match="`object_masks` to be of shape"):
            kernel(CASE, MASK[:, :1])
    with pytest.raises(ValueError, match="`quantile` to lie strictly between 0 and 1, but got 1"):
        region_intersection_over_union(CASE, MASK, quantile=1)
