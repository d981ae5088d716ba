import math
from functools import partial
from statistics import NormalDist

import pytest
import torch

from protometry.metrics import Contrastiveness
from protometry.metrics.functional import contrastiveness, normal_overlap
from tests.metrics.class_representation.scores import USED, drawn, planted, scores
from tests.metrics.tester import NAN, Case, MetricTests, mean, nowhere_finite, updated

TWO_GROUPS = torch.tensor([[-3.1], [-3.0], [-2.9], [2.9], [3.0], [3.1]])


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


def slow(data):
    columns = data["scores"].double().T[USED].tolist()
    return mean([slow_contrast(column) if column else NAN for column in columns])


class TestContrastiveness(MetricTests):
    data = {"scores": scores()}
    cases = {"contrastiveness": Case(partial(Contrastiveness, 5, USED), data, slow, nowhere_finite(data), 5)}

    def test_units_keep_their_places_and_only_those_used_are_stored(self):
        metric = updated(Contrastiveness(3, torch.tensor([False, False, True])), {"scores": TWO_GROUPS.expand(-1, 3)})
        assert metric.scores.shape == (6, 1)
        assert metric.values().isnan().tolist() == [True, True, False]


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
    for offset in (0, 1e-9, 1e-3, 0.7, 4):
        for ratio in (1, 1 + 1e-12, 1 + 1e-6, 1.01, 3, 1e3):
            one, other = NormalDist(-1, 0.2), NormalDist(-1 + 0.2 * offset, 0.2 * ratio)
            arguments = torch.tensor([one.mean, one.stdev, other.mean, other.stdev], dtype=torch.float64)
            for order in ([0, 1, 2, 3], [2, 3, 0, 1]):
                value = normal_overlap(*arguments[order]).item()
                assert value == pytest.approx(one.overlap(other), abs=1e-5 if ratio < 1.001 else 1e-9), (offset, ratio)


def test_by_hand():
    assert contrastiveness(TWO_GROUPS).tolist() == pytest.approx([1], abs=1e-6)
    single = contrastiveness(drawn(0, 6000, 3).double())
    assert ((single > 0.53) & (single < 0.58)).all()  # of one Gaussian, with the usual tolerance
    assert (contrastiveness(drawn(0, 6000, 3), 1000, 1e-9) < 0.35).all()


def test_slow_oracle():
    scores = drawn(0, 61, 8)
    scores[:30] += torch.arange(8.0)
    scores[:, 1] = scores[:, 1].relu()
    scores[:, 2], scores[7, 3], scores[8, 4] = 0.3, NAN, math.inf
    scores = scores
    for options in ((), (3, 0.0), (100, 0.1)):
        expected = [slow_contrast(column, *options) for column in scores.double().T.tolist()]
        values = contrastiveness(scores, *options)
        assert (values.dtype, values.tolist()) == (torch.float64, pytest.approx(expected, abs=1e-9, nan_ok=True))
    assert values[:5].isnan().tolist() == [False, False, True, True, True]


def test_order_other_units_and_scale_change_nothing(monkeypatch):
    scores = drawn(1, 40, 6).double()
    scores[:15, 3] += 5
    expected = contrastiveness(scores)
    assert torch.equal(contrastiveness(scores.flip(0)), expected)
    torch.testing.assert_close(contrastiveness(scores[:, [4, 3]]), expected[[4, 3]], rtol=0, atol=0)
    torch.testing.assert_close(contrastiveness(scores * 1e-3 + 7), expected)
    monkeypatch.setattr("protometry.metrics.primitives.chunks.CPU_ELEMENTS", 1)
    assert torch.equal(contrastiveness(scores), expected)  # one unit at a time
    for few in (torch.zeros(0, 2), torch.ones(1, 2)):
        assert contrastiveness(few).isnan().tolist() == [True, True]
    assert contrastiveness(torch.zeros(3, 0)).shape == (0,)


def test_planted_truth():
    """Features that half of the classes share, and noise."""
    _, present, noise, _ = planted()
    contrasts = [updated(Contrastiveness(s.shape[1]), {"scores": s}).compute() for s in (present, noise)]
    assert contrasts[0] > 0.99
    assert contrasts[1] < 0.7
