"""The losses over two views of one image, against references that follow the definitions cell by cell."""

from __future__ import annotations

import math

import pytest
import torch

from protometry.lightning_modules.bases.losses import alignment, tanh_uniformity

close = torch.testing.assert_close


def softmax_maps(seed, shape=(3, 5, 2, 4)):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).mul(3).softmax(1)


def test_alignment_by_hand():
    """One image, two cells: ⟨(.5, .5), (.25, .75)⟩ = .5 and ⟨(1, 0), (.25, .75)⟩ = .25."""
    first = torch.tensor([[0.5, 1.0], [0.5, 0.0]]).view(1, 2, 1, 2)
    second = torch.tensor([[0.25, 0.25], [0.75, 0.75]]).view(1, 2, 1, 2)
    assert alignment(first, second).item() == pytest.approx(-(math.log(0.5) + math.log(0.25)) / 2, rel=1e-6)


def test_alignment_of_views_that_agree_or_never_meet():
    certain, other = torch.eye(2).view(2, 2, 1, 1), torch.eye(2).flip(0).view(2, 2, 1, 1)
    assert alignment(certain, certain).item() == pytest.approx(0, abs=1e-6)
    assert alignment(certain, other).item() == pytest.approx(-math.log(1e-12), rel=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_alignment_by_definition(seed):
    first, second = softmax_maps(seed), softmax_maps(seed + 10)
    total, cells = 0.0, 0
    for image in range(3):
        for row in range(2):
            for column in range(4):
                pair = first[image, :, row, column].double(), second[image, :, row, column].double()
                total -= math.log(sum(float(a) * float(b) for a, b in zip(*pair, strict=True)) + 1e-12)
                cells += 1
    assert alignment(first, second).item() == pytest.approx(total / cells, rel=1e-5)
    assert alignment(second, first).item() == pytest.approx(total / cells, rel=1e-5)


def test_alignment_gradient_is_that_of_the_stopped_half_sum():
    """Regression: without stop gradient both sides learn twice."""
    values = softmax_maps(0), softmax_maps(1)

    def gradients(loss):
        views = [value.clone().requires_grad_() for value in values]
        return torch.autograd.grad(loss(*views), views)

    def direction(p, fixed):
        return -torch.log(torch.einsum("buij,buij->bij", p, fixed.detach()) + 1e-12).mean()

    ours = gradients(alignment)
    stopped = gradients(lambda a, b: 0.5 * (direction(a, b) + direction(b, a)))
    both = gradients(lambda a, b: -torch.log((a * b).sum(1) + 1e-12).mean())
    for mine, right, wrong in zip(ours, stopped, both, strict=True):
        close(mine.norm() / right.norm(), torch.tensor(1.0))
        close(mine, right)
        close(wrong, 2 * right)


def test_tanh_uniformity_by_hand():
    """Sums of the first view: 1 and 0 (unit 1 shows nowhere); of the second: 2 and 0.5."""
    first, second = torch.tensor([[0.25, 0.0], [0.75, 0.0]]), torch.tensor([[1.0, 0.5], [1.0, 0.0]])
    logs = [math.log(math.tanh(total) + 1e-8) for total in (1, 0, 2, 0.5)]
    assert tanh_uniformity(first, second).item() == pytest.approx(-sum(logs) / 4, rel=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_tanh_uniformity_by_definition(seed):
    generator = torch.Generator().manual_seed(seed)
    views = [torch.rand(4, 7, generator=generator) for _ in range(2)]
    value = 0.0
    for view in views:
        logs = [math.log(math.tanh(sum(view[b, u].item() for b in range(4))) + 1e-8) for u in range(7)]
        value -= 0.5 * sum(logs) / 7
    assert tanh_uniformity(*views).item() == pytest.approx(value, rel=1e-5)


def test_tanh_uniformity_saturates_with_the_batch():
    one = torch.full((1, 3), 0.5)
    losses = [tanh_uniformity(one.expand(n, 3), one.expand(n, 3)).item() for n in (1, 2, 8, 64)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] == pytest.approx(0, abs=1e-6)
