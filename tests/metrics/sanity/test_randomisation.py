"""Rank correlation and structural similarity of maps with those of a randomised model."""

import math
from itertools import product

import pytest
import torch
from scipy.stats import spearmanr

from protometry.metrics import RandomisedRankCorrelation, RandomisedSimilarity
from protometry.metrics.functional import map_rank_correlation, map_structural_similarity
from tests.metrics.tester import NAN, Case, MetricTests, approx, mean, nowhere_finite

HEIGHT, WIDTH = 8, 9  # four or six windows of 7×7


def maps(seed):
    """Of two units of nine images: ties, flat maps and one that is not finite."""
    values = torch.randn(9, 2, HEIGHT, WIDTH, generator=torch.Generator().manual_seed(seed))
    values[::2] = values[::2].round()
    values[1, 0], values[2, 1, 3, 3], values[4] = 2, NAN if seed % 2 else math.inf, NAN
    return values


def slow_correlation(one, other):
    return spearmanr(one.flatten(), other.flatten()).statistic


def slow_similarity(one, other):
    one, other = ((part - part.min()) / (part.max() - part.min()) for part in (one, other))
    values = []
    for y, x in product(range(HEIGHT - 6), range(WIDTH - 6)):
        a, b = (part[y : y + 7, x : x + 7].flatten().tolist() for part in (one, other))
        m, n = sum(a) / 49, sum(b) / 49
        v, w = sum((i - m) ** 2 for i in a) / 49, sum((j - n) ** 2 for j in b) / 49
        covariance = sum((i - m) * (j - n) for i, j in zip(a, b, strict=True)) / 49
        values.append((2 * m * n + 1e-4) * (2 * covariance + 9e-4) / ((m * m + n * n + 1e-4) * (v + w + 9e-4)))
    return sum(values) / len(values)


KERNELS = {map_rank_correlation: slow_correlation, map_structural_similarity: slow_similarity}


def fit(one):
    return math.isfinite(one.max() - one.min()) and one.max() > one.min()


def slow_values(slow, one, other):
    """One value per map of each image, NaN where either is flat or not finite."""
    pairs = zip(*(part.double().flatten(0, 1).numpy() for part in (one, other)), strict=True)
    values = [slow(*pair) if all(map(fit, pair)) else NAN for pair in pairs]
    return torch.tensor(values, dtype=torch.float64).view(one.shape[:2]).tolist()


def case(kind, slow):
    record = {"saliency": maps(1), "randomised_saliency": maps(2).roll(1, 0), "shifted_saliency": maps(3).roll(2, 0)}

    def oracle(data):
        values, control = (slow_values(slow, data["saliency"], data[name]) for name in list(data)[1:])
        pairs = (zip(*units, strict=True) for units in zip(values, control, strict=True))
        return mean(mean(value + 0 * of_control for value, of_control in units) for units in pairs)

    return Case(kind, record, oracle, nowhere_finite(record), 18)


class TestBoth(MetricTests):
    cases = {
        kind.__name__: case(kind, slow)
        for kind, slow in zip((RandomisedRankCorrelation, RandomisedSimilarity), KERNELS.values(), strict=True)
    }


@pytest.mark.parametrize("kernel", KERNELS)
def test_both_sides_are_alike(kernel):
    torch.testing.assert_close(kernel(maps(2), maps(1)), kernel(maps(1), maps(2)), equal_nan=True)


def test_by_hand():
    rising = torch.arange(64.0).view(1, 1, 8, 8)
    assert map_rank_correlation(rising, rising.square()).item() == approx(1)  # any rising function
    assert map_rank_correlation(rising, -rising).item() == approx(-1)
    assert map_structural_similarity(rising, 3 * rising - 5).item() == approx(1)
    spot = torch.zeros(1, 1, 7, 7)
    spot[..., 3, 3] = 1
    m, v = 1 / 49, 48 / 49**2  # of the one window; the mean of the inverse is 1 - m, its covariance -v
    expected = (2 * m * (1 - m) + 1e-4) * (9e-4 - 2 * v) / ((m * m + (1 - m) ** 2 + 1e-4) * (2 * v + 9e-4))
    assert map_structural_similarity(spot, 1 - spot).item() == approx(expected)
