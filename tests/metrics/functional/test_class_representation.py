import math
from statistics import NormalDist

import pytest
import torch

from metrics.functional import (
    class_independence,
    contrastiveness,
    normal_overlap,
    scale_invariant_diversity,
    similar_class_pairs,
    structural_grounding,
)

NAN = math.nan
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
ATTRIBUTES = torch.tensor([[1.0, 0.0], [4.0, 3.0], [0.0, 1.0]])
WEIGHT = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
TWO_GROUPS = torch.tensor([[-3.1], [-3.0], [-2.9], [2.9], [3.0], [3.1]])


def drawn(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# -- structural grounding
def slow_cosine(one, other):
    lengths = [math.sqrt(sum(x * x for x in row)) for row in (one, other)]
    return NAN if 0 in lengths else sum(x * y for x, y in zip(one, other, strict=True)) / lengths[0] / lengths[1]


def slow_grounding(weight, attributes, pairs):
    every = [(a, b) for a in range(len(attributes)) for b in range(a + 1, len(attributes))]
    truth = {pair: slow_cosine(attributes[pair[0]], attributes[pair[1]]) for pair in every}
    model = {pair: slow_cosine(weight[pair[0]], weight[pair[1]]) for pair in every}
    chosen = sorted(every, key=lambda pair: -truth[pair])[:pairs]
    kept = [pair for pair in chosen if not math.isnan(model[pair])]
    return sum(model[pair] for pair in kept) / sum(truth[pair] for pair in kept) if kept else NAN


def test_grounding_by_hand():
    # cosines of the attributes: 0.8, 0, 0.6; of the weights 1/2, 0, 1/sqrt 2
    assert similar_class_pairs(ATTRIBUTES).tolist() == [[0, 1], [1, 2], [0, 2]]
    zero_row = WEIGHT * torch.tensor([[1.0], [1.0], [0.0]])
    for weight, value in (
        (WEIGHT, (0.5 + math.sqrt(0.5)) / 1.4),
        (ATTRIBUTES, 1),
        (torch.eye(3), 0),
        (torch.ones(3, 2), 2 / 1.4),
        (zero_row, 0.5 / 0.8),
        (torch.zeros(3, 2), NAN),
    ):
        assert structural_grounding(weight, ATTRIBUTES, 2).item() == pytest.approx(value, nan_ok=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_grounding_oracle(dtype):
    for seed in range(3):
        weight, attributes = drawn(seed, 9, 7).to(dtype), drawn(seed + 9, 9, 12).abs().to(dtype)
        weight[4] = 0
        for pairs in (1, 10, 100):
            expected = slow_grounding(weight.double().tolist(), attributes.double().tolist(), pairs)
            value = structural_grounding(weight.T.contiguous().T, attributes, pairs)
            assert (value.dtype, value.item()) == (torch.float64, pytest.approx(expected, nan_ok=True))


def test_grounding_properties():
    weight, attributes = drawn(0, 8, 6).double(), drawn(1, 8, 20).abs().double()
    value = structural_grounding(weight, attributes).item()
    rows = torch.randperm(8, generator=torch.Generator().manual_seed(2))
    for same in (
        structural_grounding(weight[:, [3, 1, 0, 2, 5, 4]], attributes),
        structural_grounding(weight[rows], attributes[rows]),
        structural_grounding(weight * drawn(3, 8, 1).abs(), attributes * 100),
    ):
        assert same.item() == pytest.approx(value)


def test_equal_pairs_come_in_row_major_order_at_any_scale():
    alike = (torch.eye(4).double() + 0.3) * torch.tensor([[1], [0.7], [0.1], [31]]).double()
    first = [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]
    for scale in (1, 100, 1 / 3):
        assert similar_class_pairs(alike * scale).tolist() == first
    alike[1] = 0  # without attributes: last
    assert similar_class_pairs(alike).tolist() == [[0, 2], [0, 3], [2, 3], [0, 1], [1, 2], [1, 3]]


# -- contrastiveness
def slow_fit(values, shares):
    weights = [sum(1 - r for r in shares), sum(shares)]
    means = [sum((1 - r) * x for x, r in zip(values, shares, strict=True)) / weights[0]]
    means.append(sum(r * x for x, r in zip(values, shares, strict=True)) / weights[1])
    lower = sum((1 - r) * (x - means[0]) ** 2 for x, r in zip(values, shares, strict=True)) / weights[0]
    upper = sum(r * (x - means[1]) ** 2 for x, r in zip(values, shares, strict=True)) / weights[1]
    normals = [NormalDist(means[0], math.sqrt(lower + 1e-6)), NormalDist(means[1], math.sqrt(upper + 1e-6))]
    return [weight / len(values) for weight in weights], normals


def slow_squares(values):
    mean = sum(values) / len(values)
    return sum((x - mean) ** 2 for x in values)


def slow_contrast(column, max_iterations=100, tolerance=1e-3):
    if not all(map(math.isfinite, column)) or min(column) == max(column):
        return NAN
    mean, deviation = sum(column) / len(column), math.sqrt(slow_squares(column) / len(column))
    values = sorted((x - mean) / deviation for x in column)
    size = min(range(1, len(values)), key=lambda n: slow_squares(values[:n]) + slow_squares(values[n:]))
    weights, normals = slow_fit(values, [0] * size + [1] * (len(values) - size))
    last = -math.inf
    for _ in range(max_iterations):
        joint = [[w * normal.pdf(x) for w, normal in zip(weights, normals, strict=True)] for x in values]
        likelihood = sum(math.log(sum(pair)) for pair in joint) / len(values)
        weights, normals = slow_fit(values, [pair[1] / sum(pair) for pair in joint])
        if abs(likelihood - last) < tolerance:
            break
        last = likelihood
    return 1 - normals[0].overlap(normals[1])


def test_overlap_by_hand():
    zero = torch.zeros(5)
    mean, std = torch.tensor([2.0, 0.0, 1.0, 0.0, 50.0]), torch.tensor([1.0, 2.0, 3.0, 1.0, 1.0])
    expected = [0.317311, 0.677325, 0.493380, 1, 0]
    assert normal_overlap(zero, zero + 1, mean, std).tolist() == pytest.approx(expected, abs=1e-6)
    assert normal_overlap(zero, torch.tensor([0.0, -1.0, NAN, math.inf, 1.0]), mean, std).isnan().tolist() == [
        True, True, True, True, False,
    ]  # fmt: skip


def test_overlap_is_that_of_the_standard_library():
    """Also of normals of almost the same mean or width, where the roots of the densities run away."""
    for mean in (0, 1e-9, 1e-3, 0.7, 4):
        for ratio in (1, 1 + 1e-12, 1 + 1e-6, 1.01, 3, 1e3):
            one, other = NormalDist(-1, 0.2), NormalDist(-1 + 0.2 * mean, 0.2 * ratio)
            arguments = torch.tensor([one.mean, one.stdev, other.mean, other.stdev], dtype=torch.float64)
            for order in ([0, 1, 2, 3], [2, 3, 0, 1]):
                value = normal_overlap(*arguments[order]).item()
                assert value == pytest.approx(one.overlap(other), abs=1e-5 if ratio < 1.001 else 1e-9), (mean, ratio)


def test_contrastiveness_by_hand():
    assert contrastiveness(TWO_GROUPS).tolist() == pytest.approx([1], abs=1e-6)
    single = contrastiveness(drawn(0, 6000, 3).double())
    assert ((single > 0.53) & (single < 0.58)).all()  # of one Gaussian, with the usual tolerance
    assert (contrastiveness(drawn(0, 6000, 3), 1000, 1e-9) < 0.35).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_contrastiveness_oracle(dtype):
    scores = drawn(0, 61, 8)
    scores[:30] += torch.arange(8.0)
    scores[:, 1] = scores[:, 1].relu()
    scores[:, 2], scores[7, 3], scores[8, 4] = 0.3, NAN, math.inf
    scores = scores.to(dtype)
    for options in ((), (3, 0.0), (100, 0.1)):
        expected = [slow_contrast(column, *options) for column in scores.double().T.tolist()]
        values = contrastiveness(scores, *options)
        assert values.dtype == torch.float64
        assert values.tolist() == pytest.approx(expected, abs=1e-9, nan_ok=True)
    assert values[:5].isnan().tolist() == [False, False, True, True, True]


def test_contrastiveness_properties(monkeypatch):
    scores = drawn(1, 40, 6).double()
    scores[:15, 3] += 5
    expected = contrastiveness(scores)
    assert torch.equal(contrastiveness(scores.flip(0)), expected)
    torch.testing.assert_close(contrastiveness(scores[:, [4, 3]]), expected[[4, 3]], rtol=0, atol=0)
    torch.testing.assert_close(contrastiveness(scores * 1e-3 + 7), expected)
    monkeypatch.setattr("metrics.primitives.chunks.CPU_ELEMENTS", 1)
    assert torch.equal(contrastiveness(scores), expected)  # one unit at a time
    for few in (torch.zeros(0, 2), torch.ones(1, 2)):
        assert contrastiveness(few).isnan().tolist() == [True, True]
    assert contrastiveness(torch.zeros(3, 0)).shape == (0,)


# -- class independence
def slow_independence(column, labels):
    shifted = [x - min(column) for x in column]
    if not all(map(math.isfinite, column)) or sum(shifted) == 0:
        return NAN
    sums = [sum(x for x, y in zip(shifted, labels, strict=True) if y == label) for label in set(labels)]
    return 1 - max(sums) / sum(shifted)


@pytest.mark.parametrize("dtype", DTYPES)
def test_class_independence(dtype):
    hand = torch.tensor([[1.0, 0], [3, 0], [2, 5], [1, 6]], dtype=dtype)  # 0, 2 | 1, 0, and a detector of class 1
    assert class_independence(hand, torch.tensor([0, 0, 1, 1]), 2).tolist() == pytest.approx([1 / 3, 0])
    scores, labels = drawn(2, 30, 5).to(dtype), torch.arange(30) % 4
    scores[:, 1], scores[3, 2] = 0.1, NAN
    expected = [slow_independence(column, labels.tolist()) for column in scores.double().T.tolist()]
    values = class_independence(scores, labels, 6)  # two classes without images
    assert values.tolist() == pytest.approx(expected, nan_ok=True)
    assert values[[1, 2]].isnan().all()
    torch.testing.assert_close(class_independence(3 * scores.double() - 8, labels, 6), values, equal_nan=True)
    everywhere = torch.tensor([[1.0], [0.0]] * 4)  # each class alike: 1 - 1/K
    assert class_independence(everywhere, torch.arange(4).repeat_interleave(2), 4).item() == 0.75
    assert class_independence(scores[:0], labels[:0], 4).isnan().all()


# -- scale-invariant diversity
def slow_diversity(maps, weight, prediction, k):
    units = sorted((u for u in range(len(maps)) if weight[prediction][u] != 0), key=lambda u: -weight[prediction][u])
    if len(units) < k:
        return NAN
    shares = []
    for unit in units[:k]:
        scale = max(sum(map(abs, maps[unit])) / len(maps[unit]), 1e-5)
        exponentials = [math.exp(value / scale) for value in maps[unit]]
        shares.append([value / sum(exponentials) for value in exponentials])
    return sum(max(cell) for cell in zip(*shares, strict=True)) / k


def test_diversity_by_hand():
    maps = torch.tensor([[[2.0, 0.0]], [[0.0, 2.0]]])
    batch, weight = torch.stack([maps, 10 * maps, maps[[0, 0]], 0 * maps]), torch.ones(1, 2)
    values = scale_invariant_diversity(batch, weight, torch.zeros(4, dtype=torch.int64), 2)
    assert values.tolist() == pytest.approx([0.880797, 0.880797, 0.5, 0.5], abs=1e-6)
    peaked = torch.eye(5).view(1, 5, 1, 5) * 1e3  # each alone in its cell
    assert scale_invariant_diversity(peaked, torch.ones(1, 5), torch.tensor([0])).item() > 0.97


@pytest.mark.parametrize("dtype", DTYPES)
def test_diversity_oracle(dtype, monkeypatch):
    monkeypatch.setattr("metrics.primitives.chunks.CPU_ELEMENTS", 40)
    maps, predictions = drawn(3, 9, 8, 3, 2).to(dtype), torch.arange(9) % 4
    weight = drawn(4, 4, 8).mul(2).round().to(dtype)  # ties, zeros and negative weights
    weight[2, 3:] = 0
    for k in (1, 2, 5):
        rows = zip(maps.double().flatten(2).tolist(), predictions.tolist(), strict=True)
        expected = [slow_diversity(row, weight.tolist(), prediction, k) for row, prediction in rows]
        values = scale_invariant_diversity(maps, weight, predictions, k)
        assert values.dtype == torch.float64
        assert values.tolist() == pytest.approx(expected, nan_ok=True)
        assert (values.nan_to_num(1) >= 1 / k).all()
    assert values[2].isnan()
    assert scale_invariant_diversity(maps, weight, predictions, 9).isnan().all()  # more features than there are
    assert scale_invariant_diversity(maps[:0], weight, predictions[:0]).shape == (0,)
    maps[1, weight[1].argmax(), 0, 0] = math.inf
    assert scale_invariant_diversity(maps, weight, predictions, 1)[1].isnan()


def test_errors():
    labels = torch.tensor([0, 2])
    for call, text in (
        (lambda: structural_grounding(WEIGHT[:2], ATTRIBUTES), r"`weight` to be of shape \(3, U\)"),
        (lambda: structural_grounding(WEIGHT, ATTRIBUTES, 0), "`pairs` to be at least 1, but got 0"),
        (lambda: contrastiveness(TWO_GROUPS, 0), "`max_iterations` to be at least 1, but got 0"),
        (lambda: class_independence(WEIGHT[:2], labels, 2), "`labels` to hold ids below 2"),
        (lambda: scale_invariant_diversity(torch.ones(2, 3, 1, 1), WEIGHT[:2], labels), "`predictions` to hold ids"),
        (lambda: scale_invariant_diversity(torch.ones(2, 3, 1, 1), WEIGHT, labels, 0), "`k` to be at least 1"),
    ):
        with pytest.raises(ValueError, match=text):
            call()
