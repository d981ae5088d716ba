import math

import pytest
import torch

from metrics.functional import prototype_similarity_change

NAN = math.nan


def test_by_hand():
    change = prototype_similarity_change(torch.tensor([[2.0, 2, 0]]), torch.tensor([[1.5, 3, 1]]))
    assert change.flatten().tolist() == pytest.approx([0.25, 0.5, NAN], nan_ok=True)


def test_only_positive_scores_are_defined():
    scores, perturbed = torch.tensor([[0.0, -2.0, 1.0]]), torch.tensor([[0.0, 1.0, -3.0]])
    assert prototype_similarity_change(scores, perturbed).flatten().tolist() == pytest.approx(
        [NAN, NAN, 4], nan_ok=True
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_slow_oracle(dtype):
    scores, perturbed = torch.randn(2, 9, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    expected = [
        abs(s - p) / s if s > 0 else NAN
        for s, p in zip(scores.flatten().tolist(), perturbed.flatten().tolist(), strict=True)
    ]
    change = prototype_similarity_change(scores, perturbed)
    assert change.dtype == torch.float64
    assert change.flatten().tolist() == pytest.approx(expected, rel=1e-12, nan_ok=True)
    assert torch.equal(prototype_similarity_change(4 * scores, 4 * perturbed).nan_to_num(-1), change.nan_to_num(-1))
    layout = prototype_similarity_change(scores.T.contiguous().T, perturbed)
    assert torch.equal(layout.nan_to_num(-1), change.nan_to_num(-1))


def test_zero_change_is_exactly_zero():
    scores = torch.rand(16, 5, generator=torch.Generator().manual_seed(1)) + 0.01
    for batch in (1, 4, 16):
        assert all((prototype_similarity_change(part, part.clone()) == 0).all() for part in scores.split(batch))


@pytest.mark.parametrize("bad", [NAN, math.inf, -math.inf])
def test_not_finite_is_undefined(bad):
    scores, broken = torch.ones(1, 2), torch.tensor([[bad, 1.0]])
    assert prototype_similarity_change(scores, broken).isnan().tolist() == [[True, False]]
    assert prototype_similarity_change(broken, scores).isnan().tolist() == [[True, False]]


def test_no_image_and_errors():
    assert prototype_similarity_change(torch.zeros(0, 3), torch.zeros(0, 3)).shape == (0, 3)
    with pytest.raises(ValueError, match="`scores` to be of shape"):
        prototype_similarity_change(torch.zeros(3), torch.zeros(3))
    with pytest.raises(ValueError, match="`perturbed_scores` to be of shape"):
        prototype_similarity_change(torch.zeros(1, 3), torch.zeros(1, 2))
