import math

import pytest
import torch

from metrics.functional import background_overlap, inside_outside_relevance_difference, object_overlap
from metrics.primitives import chunks

NAN = math.nan
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
KERNELS = (object_overlap, background_overlap, inside_outside_relevance_difference)


def hand_case():
    """3×4, object = columns 0 and 1, relevance 4 and 2 inside, 1 outside."""
    saliency = torch.zeros(1, 1, 3, 4)
    saliency[0, 0, 0, 0], saliency[0, 0, 1, 1], saliency[0, 0, 2, 3] = 4, 2, 1
    masks = torch.zeros(1, 3, 4, dtype=torch.bool)
    masks[0, :, :2] = True
    return saliency, masks


def slow(saliency, mask):
    """The three values of one map, as lists of rows."""
    pixels = [
        (value, inside)
        for row, flags in zip(saliency, mask, strict=True)
        for value, inside in zip(row, flags, strict=True)
    ]
    area, region = sum(m for _, m in pixels), [m for v, m in pixels if v > 0]
    if not all(math.isfinite(v) for v, _ in pixels) or not area or not region:
        return NAN, NAN, NAN
    best, sides = max(v for v, _ in pixels), []
    for side in (True, False):
        relevance = [v / best for v, m in pixels if m == side and v > 0]
        sides.append(sum(relevance) / len(relevance) if relevance else 0)
    difference = sides[0] - sides[1] if area < len(pixels) else NAN
    return sum(region) / area, 1 - sum(region) / len(region), difference


def approx(values):
    return pytest.approx(values, abs=1e-12, nan_ok=True)


def test_hand_case():
    saliency, masks = hand_case()
    assert object_overlap(saliency, masks).tolist() == [[2 / 6]]
    assert background_overlap(saliency, masks).item() == pytest.approx(1 / 3)
    assert inside_outside_relevance_difference(saliency, masks).tolist() == [[0.5]]  # (1 + .5) / 2 - .25


@pytest.mark.parametrize("dtype", DTYPES)
def test_slow_oracle(dtype):
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        saliency = torch.randn(6, 3, 4, 5, generator=generator).clamp(min=0).to(dtype)
        masks = torch.rand(6, 4, 5, generator=generator) < 0.5
        saliency[0, 0], masks[1], masks[2] = 0, False, True
        saliency[3, 1, 0, 0], saliency[3, 2, 0, 0] = NAN, math.inf
        expected = [
            [slow(v, m) for v in maps] for maps, m in zip(saliency.double().tolist(), masks.tolist(), strict=True)
        ]
        for index, kernel in enumerate(KERNELS):
            for strided in (saliency, saliency.transpose(2, 3).contiguous().transpose(2, 3)):
                values = kernel(strided, masks)
                assert values.dtype == torch.float64
                assert values.flatten().tolist() == approx([row[index] for image in expected for row in image])


def test_range_and_ends():
    _, masks = hand_case()
    inside = masks[:, None].float()
    assert [kernel(inside, masks).item() for kernel in KERNELS] == [1, 0, 1]
    assert [kernel(1 - inside, masks).item() for kernel in KERNELS] == [0, 1, -1]
    # both overlaps of a random region: it covers as much of the object as of the image
    even = torch.ones(1, 1, 3, 4)
    assert [kernel(even, masks).item() for kernel in KERNELS] == [1, 0.5, 0]


def test_empty_is_undefined_never_perfect():
    saliency, masks = hand_case()
    for kernel in KERNELS:
        assert kernel(torch.zeros_like(saliency), masks).isnan().all()
        assert kernel(saliency, torch.zeros_like(masks)).isnan().all()
    full = torch.ones_like(masks)
    assert object_overlap(saliency, full).tolist() == [[3 / 12]]
    assert background_overlap(saliency, full).tolist() == [[0]]
    assert inside_outside_relevance_difference(saliency, full).isnan().all()


def test_fractional_relevance_is_kept():
    saliency, masks = hand_case()
    for kernel in KERNELS:
        assert kernel(saliency / 8, masks).tolist() == kernel(saliency, masks).tolist()  # 0.5, 0.25, 0.125


@pytest.mark.parametrize("at_once", [1, 2 * 60])
def test_size_of_chunks(monkeypatch, at_once):
    generator = torch.Generator().manual_seed(4)
    saliency = torch.randn(5, 3, 4, 5, generator=generator).clamp(min=0)
    masks = torch.rand(5, 4, 5, generator=generator) < 0.5
    whole = inside_outside_relevance_difference(saliency, masks)
    monkeypatch.setattr(chunks, "CPU_ELEMENTS", at_once)
    assert torch.equal(inside_outside_relevance_difference(saliency, masks), whole)


def test_no_image():
    for kernel in KERNELS:
        assert kernel(torch.zeros(0, 2, 3, 4), torch.zeros(0, 3, 4, dtype=torch.bool)).shape == (0, 2)


def test_errors():
    saliency, masks = hand_case()
    for kernel in KERNELS:
        with pytest.raises(ValueError, match="`saliency` to be of shape"):
            kernel(saliency[0], masks)
        with pytest.raises(ValueError, match=r"`object_masks` to be of shape \(1, 3, 4\) and dtype bool"):
            kernel(saliency, masks.float())
