"""Loss terms against references that follow the definitions image by image."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from protometry.lightning_modules.bases.losses import (
    cluster,
    cross_entropy,
    feature_diversity,
    multilabel_margin,
    off_class_l1,
    orthonormality,
    separation,
    slot_orthogonality,
    subspace_separation,
)


def slow_cluster(distances, own, targets):
    """Chen et al. for one label; for several the mean over the labels of the term for each."""
    labels_of = [[int(target)] if target.ndim == 0 else target.nonzero().flatten().tolist() for target in targets]
    images = []
    for image, labels in enumerate(labels_of):
        terms = []
        for label in labels:
            candidates = [distances[image, u].item() for u in range(distances.shape[1]) if own[label, u]]
            if candidates:
                terms.append(min(candidates))
        if terms:
            images.append(sum(terms) / len(terms))
    return sum(images) / len(images) if images else 0.0


def slow_margin(logits, labels):
    total = 0.0
    for row, present in zip(logits.double().tolist(), labels.tolist(), strict=True):
        for c, j in itertools.product(range(len(row)), repeat=2):
            if present[c] and not present[j]:
                total += max(0.0, 1 - (row[c] - row[j])) / len(row)
    return total / len(logits)


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


def draw_labels(seed, images=6, classes=6):
    """Some images with several labels, the first with none, the second with all."""
    labels = torch.rand(images, classes, generator=torch.Generator().manual_seed(seed + 100)) < 0.4
    labels[0], labels[1] = False, True
    return labels


TARGETS = {"one label": lambda seed: torch.tensor([0, 1, 2, 3, 0, 5]), "several labels": draw_labels}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scale", [1.0, 1e4])
@pytest.mark.parametrize("kind", TARGETS)
def test_cluster_and_separation_are_exact_minima(seed, scale, kind):
    distances, own = draw(seed, scale=scale)
    own[0] = False  # a class without any prototype
    own[1] = True  # and one that has them all
    targets = TARGETS[kind](seed)
    assert cluster(distances, own, targets).item() == pytest.approx(slow_cluster(distances, own, targets), rel=1e-6)
    others = slow_cluster(distances, ~own, targets)
    assert separation(distances, own, targets).item() == pytest.approx(others, rel=1e-6)


def test_distances_above_the_channel_count_are_not_clipped():
    """128 channels, own distance 150: max((128 - d) * mask) would give 128."""
    distances, own = torch.tensor([[150.0, 1.0], [2.0, 300.0]]), torch.eye(2, dtype=torch.bool)
    for targets in (torch.tensor([0, 1]), torch.eye(2, dtype=torch.bool)):
        assert cluster(distances, own, targets).item() == 225.0
        assert separation(distances, own, targets).item() == 1.5


def test_several_labels_by_hand():
    """Classes 0 (units 0, 1), 1 (unit 2), 2 (none). Image 0 shows 0 and 1: (3 + 2) / 2; image 1 shows 1 and 2: 7.

    Separation: image 0 (min(2, 4) + min(3, 5, 4)) / 2, image 1: (min(1, 6, 8) + min(1, 6, 7, 8)) / 2.
    """
    distances = torch.tensor([[5.0, 3.0, 2.0, 4.0], [6.0, 1.0, 7.0, 8.0], [0.0, 0.0, 0.0, 0.0]])
    own = torch.tensor([[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]).bool()
    labels = torch.tensor([[1, 1, 0], [0, 1, 1], [0, 0, 0]]).bool()
    assert cluster(distances, own, labels).item() == (2.5 + 7.0) / 2
    assert separation(distances, own, labels).item() == (2.5 + 1.0) / 2


@pytest.mark.parametrize("seed", range(3))
def test_one_label_is_a_case_of_several(seed):
    distances, own = draw(seed)
    labels = torch.tensor([3, 1, 4, 1, 5, 2])
    several = torch.nn.functional.one_hot(labels, 6).bool()
    for term in (cluster, separation):
        torch.testing.assert_close(term(distances, own, labels), term(distances, own, several))


def test_images_without_an_own_prototype_are_left_out():
    distances = torch.tensor([[4.0, 5.0], [1.0, 2.0]], requires_grad=True)
    own = torch.tensor([[False, True], [False, False]])
    for targets in (torch.tensor([0, 1]), torch.tensor([[True, True], [False, True]])):
        distances.grad = None
        value = cluster(distances, own, targets)
        assert value.item() == 5.0  # not 2.5
        value.backward()
        assert distances.grad.tolist() == [[0.0, 1.0], [0.0, 0.0]]


@pytest.mark.parametrize("targets", [torch.tensor([0, 0, 0]), torch.ones(3, 1).bool(), torch.zeros(3, 1).bool()])
def test_nothing_to_average_is_zero_with_finite_gradients(targets):
    distances = torch.rand(3, 2, requires_grad=True)
    value = cluster(distances, torch.zeros(1, 2, dtype=torch.bool), targets)
    value.backward()
    assert value.item() == 0.0
    assert torch.equal(distances.grad, torch.zeros(3, 2))


# -- multi-label margin ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(4))
def test_margin_by_definition(seed):
    logits, labels = draw(seed, units=6, scale=4.0)[0], draw_labels(seed)
    assert multilabel_margin(logits, labels).item() == pytest.approx(slow_margin(logits, labels), rel=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_margin_equals_that_of_torch(seed):
    """Whose targets are indices, padded with -1: label sets of different sizes, class 0 among them or not."""
    logits, labels = draw(seed, units=6, scale=4.0)[0], draw_labels(seed)
    padded = torch.full((6, 6), -1)
    for row, present in zip(padded, labels, strict=True):
        row[: present.sum()] = present.nonzero().flatten()
    expected = torch.nn.functional.multilabel_margin_loss(logits, padded)
    torch.testing.assert_close(multilabel_margin(logits, labels), expected)


def test_margin_of_no_label_and_of_all_labels_is_zero():
    logits = torch.tensor([[0.3, -2.0], [5.0, 1.0], [0.0, 0.0]], requires_grad=True)
    labels = torch.tensor([[False, False], [True, True], [False, True]])
    value = multilabel_margin(logits, labels)
    value.backward()
    assert value.item() == pytest.approx(1 / (3 * 2))  # the third image alone, over three images
    assert logits.grad[:2].abs().sum() == 0
    assert logits.grad[2].tolist() == pytest.approx([1 / 6, -1 / 6])


def test_margin_is_blind_to_a_shift_of_all_logits():
    logits, labels = draw(0, units=6)[0], draw_labels(0)
    torch.testing.assert_close(multilabel_margin(logits + 7, labels), multilabel_margin(logits, labels))


# -- all -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_terms_are_float32(dtype):
    distances, own = draw(0, scale=100.0)
    targets = torch.arange(6)
    value = cluster(distances.to(dtype), own, targets)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(slow_cluster(distances.to(dtype), own, targets), rel=1e-6)
    assert cross_entropy(distances.to(dtype), torch.zeros(6, dtype=torch.int64)).dtype == torch.float32
    assert multilabel_margin(distances.to(dtype), own).dtype == torch.float32
    assert off_class_l1(distances.to(dtype), own.T).dtype == torch.float32
    assert slot_orthogonality(distances.to(dtype)[None]).dtype == torch.float32


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
@pytest.mark.parametrize("soft", [True, False])
def test_class_weights_multiply_the_term_of_each_class(seed, soft):
    """-Σ_c w_c t_c log softmax_c, divided by the number of images: two halves add up to the whole batch."""
    logits, compatible = draw(seed, scale=8.0)
    compatible[:, 0] = True
    labels, weights = torch.tensor([0, 1, 1, 8, 0, 3]), torch.linspace(0.2, 3.0, 9)
    hard = torch.nn.functional.one_hot(labels, 9).float()
    targets = compatible / compatible.sum(1, keepdim=True) if soft else hard
    given = targets if soft else None
    value = cross_entropy(logits, labels, given, weights)
    assert value.item() == pytest.approx(slow_cross_entropy(logits, targets * weights), rel=1e-5)
    halves = [cross_entropy(logits[r], labels[r], given if given is None else given[r], weights) for r in (
        slice(0, 3), slice(3, 6))]  # fmt: skip
    assert (sum(halves) / 2).item() == pytest.approx(value.item(), rel=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_off_class_l1_sums_over_foreign_prototypes(seed):
    weight, owner = draw(seed)  # 6 classes, 9 units
    weight = weight - 0.5
    expected = sum(abs(weight[k, u].item()) for k in range(6) for u in range(9) if not owner[k, u])
    assert off_class_l1(weight, owner.T).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("classes", "units", "slots", "seed"), [(1, 4, 2, 0), (3, 7, 4, 1), (2, 5, 1, 2)])
def test_slot_orthogonality_by_definition(classes, units, slots, seed):
    logits = torch.randn(classes, units, slots, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    total = following = 0.0
    for label in range(classes):
        for i in range(slots):
            for j in range(slots):
                a, b = logits[label, :, i], logits[label, :, j]
                cosine = ((a @ b) / (a.norm() * b.norm())).item()
                total += cosine * (i != j)
                following += cosine * (j == i + 1)
    assert slot_orthogonality(logits).item() == pytest.approx(total / (slots * classes), abs=1e-6)
    assert slot_orthogonality(logits, adjacent=True).item() == pytest.approx(following / (slots * classes), abs=1e-6)


def test_any_two_slots_on_one_prototype_cost():
    """Four slots on four prototypes: 0. Slots 0 and 2, no neighbours, on one: 2 ordered pairs / 4 slots."""
    apart = torch.eye(4)[None]
    assert slot_orthogonality(apart).item() == 0
    shared = apart.clone()
    shared[0, :, 2] = shared[0, :, 0]
    assert slot_orthogonality(shared).item() == 0.5


# -- feature diversity -----------------------------------------------------------------------------------------------
def slow_diversity(maps, logits, weight, active):
    total = 0.0
    for image, row in zip(maps.double(), logits, strict=True):
        chosen = weight[row.argmax()].double()
        largest = max(image[v].mean() for v in range(len(image)) if active[v])
        led = [
            image[u].flatten().softmax(0) * image[u].mean() / largest * chosen[u].abs() / (chosen.norm() + 1e-5)
            for u in range(len(image))
        ]
        total -= sum(max(cells) for cells in zip(*(cells.tolist() for cells in led), strict=True))
    return total / len(maps)


@pytest.mark.parametrize("seed", range(3))
def test_diversity_by_definition(seed):
    generator = torch.Generator().manual_seed(seed)
    maps, logits = torch.rand(3, 5, 2, 3, generator=generator) * 4, torch.randn(3, 4, generator=generator)
    maps[:, 4] += 9  # brighter than all others, but inactive
    weight, active = torch.randn(4, 5, generator=generator), torch.arange(5) < 4
    weight[:, 4] = 0
    expected = slow_diversity(maps, logits, weight, active)
    assert feature_diversity(maps, logits, weight, active).item() == pytest.approx(expected, rel=1e-5)


def test_diversity_of_a_black_image_is_finite():
    maps = torch.zeros(1, 2, 2, 2, requires_grad=True)
    value = feature_diversity(maps, torch.zeros(1, 2), torch.zeros(2, 2), torch.tensor([True, True]))
    value.backward()
    assert value.item() == 0
    assert maps.grad.isfinite().all()


# -- bases of classes ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("classes", "size", "channels"), [(2, 1, 3), (4, 3, 8), (3, 5, 4)])
def test_bases_against_their_matrices(classes, size, channels):
    """Bases that are neither orthogonal nor of unit length, against the D×D matrices of the definition."""
    bases = torch.randn(classes, size, channels, generator=torch.Generator().manual_seed(size))
    wide = bases.double()
    deviation = sum((b @ b.T - torch.eye(size).double()).abs().sum() for b in wide).item()
    pairs = itertools.combinations(wide, 2)
    distance = sum((a.T @ a - b.T @ b).norm() / math.sqrt(2) for a, b in pairs).item()
    assert orthonormality(bases).item() == pytest.approx(deviation, rel=1e-5)
    assert subspace_separation(bases).item() == pytest.approx(distance, rel=1e-5)


def test_subspaces_are_compared_not_their_bases():
    """Two bases of one plane, the second turned by 45 degrees, and a plane orthogonal to it, √2 from both."""
    turned = torch.tensor([[0.5**0.5, 0.5**0.5, 0, 0], [-(0.5**0.5), 0.5**0.5, 0, 0]])
    bases = torch.stack([torch.eye(4)[:2], turned, torch.eye(4)[2:]]).requires_grad_()
    distance = subspace_separation(bases)
    assert distance.item() == pytest.approx(2 * math.sqrt(2), abs=1e-4)
    distance.backward()
    assert bases.grad.isfinite().all()
