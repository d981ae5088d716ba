import math

import pytest
import torch

from metrics.functional import prototype_entropy

NAN = math.nan
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
CASE = torch.tensor([2.0, 2.0, 1.0, 0.1])


def slow_entropy(column, bins=10, variant="paper"):
    column = [score for score in column if math.isfinite(score)]
    if not column or max(column) <= 0:
        return NAN
    cells = [min(max(math.floor(score / max(column) * bins), 0), bins - 1) for score in column]
    shares = [cells.count(cell) / len(cells) for cell in set(cells)]
    if variant == "quanproto":
        return min(-sum(share * math.log2(share) for share in shares if share >= 0.001), 1)
    return -sum(share * math.log2(share) for share in shares)


def test_hand_cases():
    # x = 1, 1, .5, .05: bins 9, 9, 5, 0; shares ½, ¼, ¼
    assert prototype_entropy(CASE[:, None]).tolist() == [1.5]
    assert prototype_entropy(CASE[:, None], variant="quanproto").tolist() == [1.0]
    # bins 9, 0 (negative), 9, 0
    assert prototype_entropy(torch.tensor([[1.0], [-0.5], [0.95], [0.05]])).tolist() == [1.0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_slow_oracle(dtype):
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        scores = torch.randn(40, 5, generator=generator).to(dtype)
        scores[:, 3] = -scores[:, 3].abs()
        scores[4, 0], scores[5, 1], scores[6, 1] = NAN, math.inf, -math.inf
        for bins in (1, 7, 10):
            for variant in ("paper", "quanproto"):
                expected = [slow_entropy(column, bins, variant) for column in scores.double().T.tolist()]
                values = prototype_entropy(scores, bins, variant)
                assert values.dtype == torch.float64
                assert values.tolist() == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_not_clamped_at_one():
    middles = torch.arange(10.0).add(0.5).div(9.5)[:, None]
    assert prototype_entropy(middles).item() == pytest.approx(math.log2(10))
    assert prototype_entropy(middles, variant="quanproto").tolist() == [1]


def test_negligible_bins_are_dropped_by_the_published_tables():
    scores = torch.ones(2000, 1)
    scores[0] = 0.05  # share 0.0005
    kept = 1999 / 2000
    assert prototype_entropy(scores, variant="quanproto").item() == pytest.approx(-kept * math.log2(kept))
    scores[1] = 0.05  # share 0.001 is not below
    kept, other = 1998 / 2000, 0.001
    expected = -kept * math.log2(kept) - other * math.log2(other)
    assert prototype_entropy(scores, variant="quanproto").item() == pytest.approx(expected)


def test_ends_and_edges():
    assert prototype_entropy(torch.full((5, 1), 0.3)).tolist() == [0]
    assert prototype_entropy(torch.tensor([[3.0]])).tolist() == [0]
    assert prototype_entropy(torch.tensor([[0.0], [-1.0]])).isnan().all()
    assert prototype_entropy(torch.tensor([[NAN], [math.inf]])).isnan().all()
    assert prototype_entropy(torch.zeros(0, 2)).isnan().tolist() == [True, True]
    # edges belong to the bin above, also after division in float64: 0.5 / 1 in bin 5
    assert prototype_entropy(torch.tensor([[1.0], [0.5], [0.55]])).item() == pytest.approx(slow_entropy([1, 0.5, 0.55]))


def test_scale_order_and_other_units_change_nothing():
    scores = torch.rand(30, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    before = scores.clone()
    expected = prototype_entropy(scores)
    assert torch.equal(scores, before)
    torch.testing.assert_close(prototype_entropy(scores * 8), expected, rtol=0, atol=0)
    torch.testing.assert_close(prototype_entropy(scores.flip(0)), expected, rtol=0, atol=0)
    torch.testing.assert_close(prototype_entropy(scores[:, [2, 0]]), expected[[2, 0]], rtol=0, atol=0)
    many = prototype_entropy(scores.repeat(1, 5_000))  # three images at a time
    torch.testing.assert_close(many, expected.repeat(5_000), rtol=0, atol=0)
    torch.testing.assert_close(prototype_entropy(scores.T.contiguous().T), expected, rtol=0, atol=0)
    assert ((expected >= 0) & (expected <= math.log2(10))).all()


def test_errors():
    with pytest.raises(ValueError, match="`scores` to be of shape"):
        prototype_entropy(CASE)
    with pytest.raises(ValueError, match="`bins` to be at least 1, but got 0"):
        prototype_entropy(CASE[:, None], bins=0)
    with pytest.raises(ValueError, match="`variant` to be one of"):
        prototype_entropy(CASE[:, None], variant="published")
