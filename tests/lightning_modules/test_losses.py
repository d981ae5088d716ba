"""Loss terms against references that follow the definitions image by image."""

from __future__ import annotations

import math

import pytest
import torch

from lightning_modules.losses import cluster, cross_entropy, off_class_l1, separation


def slow_cluster(distances, own):
    nearest = []
    for image in range(len(distances)):
        candidates = [distances[image, u].item() for u in range(distances.shape[1]) if own[image, u]]
        if candidates:
            nearest.append(min(candidates))
    return sum(nearest) / len(nearest) if nearest else 0.0


def slow_cross_entropy(logits, targets):
    total = 0.0
    for row, target in zip(logits.double().tolist(), targets.double().tolist(), strict=True):
        normaliser = math.log(sum(math.exp(x) for x in row))
        total -= sum(t * (x - normaliser) for x, t in zip(row, target, strict=True))
    return total / len(logits)


def draw(seed, images=6, units=9, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    own = torch.rand(images, units, generator=generator) < 0.3
    return torch.rand(images, units, generator=generator) * scale, own


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_cluster_and_separation_are_exact_minima(seed, scale):
    distances, own = draw(seed, scale=scale)
    own[0] = False  # an image whose class has no prototype
    own[1] = True  # and one without any other class
    assert cluster(distances, own).item() == pytest.approx(slow_cluster(distances, own), rel=1e-6)
    assert separation(distances, own).item() == pytest.approx(slow_cluster(distances, ~own), rel=1e-6)


def test_distances_above_the_channel_count_are_not_clipped():
    """128 channels, own distance 150: max((128 - d) * mask) would give 128."""
    distances, own = torch.tensor([[150.0, 1.0], [2.0, 300.0]]), torch.tensor([[True, False], [False, True]])
    assert cluster(distances, own).item() == 225.0
    assert separation(distances, own).item() == 1.5


def test_images_without_an_own_prototype_are_left_out():
    distances = torch.tensor([[4.0, 5.0], [1.0, 2.0]], requires_grad=True)
    own = torch.tensor([[False, True], [False, False]])
    value = cluster(distances, own)
    assert value.item() == 5.0  # not 2.5
    value.backward()
    assert distances.grad.tolist() == [[0.0, 1.0], [0.0, 0.0]]


def test_no_own_prototype_at_all_is_zero_with_finite_gradients():
    distances = torch.rand(3, 2, requires_grad=True)
    value = cluster(distances, torch.zeros(3, 2, dtype=torch.bool))
    value.backward()
    assert value.item() == 0.0
    assert torch.equal(distances.grad, torch.zeros(3, 2))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_terms_are_float32(dtype):
    distances, own = draw(0, scale=100.0)
    value = cluster(distances.to(dtype), own)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(slow_cluster(distances.to(dtype), own), rel=1e-6)
    assert cross_entropy(distances.to(dtype), torch.zeros(6, dtype=torch.int64)).dtype == torch.float32
    assert off_class_l1(distances.to(dtype), own.T).dtype == torch.float32


@pytest.mark.parametrize("seed", range(3))
def test_cross_entropy_with_soft_targets(seed):
    logits, compatible = draw(seed, scale=8.0)
    compatible[:, 0] = True
    soft = compatible / compatible.sum(1, keepdim=True)
    labels = torch.arange(6)
    assert cross_entropy(logits, labels, soft).item() == pytest.approx(slow_cross_entropy(logits, soft), rel=1e-5)
    hard = torch.nn.functional.one_hot(labels, 9).float()
    assert cross_entropy(logits, labels).item() == pytest.approx(slow_cross_entropy(logits, hard), rel=1e-5)
    assert cross_entropy(logits, labels, hard).item() == pytest.approx(cross_entropy(logits, labels).item(), rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_off_class_l1_sums_over_foreign_prototypes(seed):
    weight, owner = draw(seed)  # 6 classes, 9 units
    weight = weight - 0.5
    expected = sum(abs(weight[k, u].item()) for k in range(6) for u in range(9) if not owner[k, u])
    assert off_class_l1(weight, owner.T).item() == pytest.approx(expected, rel=1e-6)
