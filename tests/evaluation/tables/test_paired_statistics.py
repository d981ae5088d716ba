"""Paired statistics against loops by the definition, exact tests and planted truths."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binomtest, ttest_1samp

from protometry.evaluation.tables import paired_statistics
from protometry.evaluation.tables.paired_statistics import difference_interval, holm, sign_flip_test

SMALL = np.array([0.5, -0.25, 1.0, 0.0, 0.75, -0.5, 0.25, 0.25])


def column(values):
    return np.asarray(values, dtype=np.float64)[:, None]


# -- intervals --------------------------------------------------------------------------------------------------------
def test_intervals_against_scipy():
    actual = difference_interval(np.stack([SMALL, SMALL + 5], axis=1), confidence=0.9)
    expected = ttest_1samp(SMALL, 0).confidence_interval(0.9)
    assert (actual[:, 0], actual[:, 1]) == (pytest.approx(list(expected)), pytest.approx(actual[:, 0] + 5))
    # 30 of 40 pairs agree: one more pair in each direction
    rare = column([2] * 8 + [-2] * 2 + [0] * 30)
    expected = ttest_1samp(np.append(rare, [2, -2]), 0).confidence_interval()
    assert difference_interval(rare)[:, 0] == pytest.approx(list(expected))


@pytest.mark.parametrize("same", [np.zeros((7, 2)), np.full((7, 2), 0.1), np.ones((1, 2)), np.ones((0, 2))])
def test_no_interval_without_a_spread(same):
    assert np.isnan(difference_interval(same)).all()


# -- sign flips -------------------------------------------------------------------------------------------------------
def test_sign_flips_against_all_of_them():
    # 2^8 sign patterns, each with probability 1/256
    total = abs(SMALL.sum())
    flips = itertools.product((-1, 1), repeat=len(SMALL))
    exact = np.mean([abs(np.dot(signs, SMALL)) >= total - 1e-12 for signs in flips])
    draws = 40_000
    result = sign_flip_test(column(SMALL), draws)[0]
    assert result == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / draws))


@pytest.mark.parametrize(("wins", "losses", "ties"), [(9, 2, 30), (5, 5, 0), (40, 22, 100), (1, 0, 3), (0, 6, 1)])
def test_right_and_wrong_predictions_give_the_exact_sign_test(wins, losses, ties):
    exact = binomtest(wins, wins + losses).pvalue
    draws = 40_000
    result = sign_flip_test(column([1] * wins + [-1] * losses + [0] * ties), draws)[0]
    assert result == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / draws) + 1 / draws)


def test_no_difference_and_the_clearest_one():
    assert (sign_flip_test(np.zeros((9, 1)))[0], sign_flip_test(np.full((60, 1), 0.1), draws=999)[0]) == (1, 1 / 1000)
    assert sign_flip_test(column([0.3])).tolist() == [1]
    assert np.isnan(sign_flip_test(np.ones((0, 1)))[0])


def test_the_direction_does_not_matter():
    assert sign_flip_test(column(-SMALL))[0] == sign_flip_test(column(SMALL))[0]


def test_false_alarms_are_as_rare_as_promised():
    data = np.random.default_rng(2).normal(0, 1, (40, 500))
    alarms = (sign_flip_test(data, draws=500) <= 0.05).mean()
    assert 0.02 <= alarms <= 0.08  # standard error 0.01


def test_chunks_and_neighbours_move_nothing(monkeypatch):
    data = np.random.default_rng(5).normal(0, 1, (30, 4))
    whole = sign_flip_test(data, 200)
    assert sign_flip_test(data[:, 2:3], 200)[0] == pytest.approx(whole[2], abs=1e-12)
    for entries in (30 * 7 + 1, 1):
        monkeypatch.setattr(paired_statistics, "MAX_ENTRIES", entries)
        assert sign_flip_test(data, 200) == pytest.approx(whole, abs=1e-12)
    assert sign_flip_test(data, 200, seed=1) != pytest.approx(whole, abs=1e-12)


# -- both -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("statistic", [difference_interval, sign_flip_test])
@pytest.mark.parametrize("wrong", [np.array([[1.0], [np.nan]]), np.array([[np.inf]]), np.ones(3)])
def test_only_finite_matrices(statistic, wrong):
    with pytest.raises(ValueError, match="Expected argument `differences` to be a finite matrix"):
        statistic(wrong)
    with pytest.raises(ValueError, match="Expected argument `draws` to be at least 1, but got 0"):
        sign_flip_test(np.ones((3, 1)), draws=0)


# -- Holm -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("p_values", "adjusted"), [
    ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),  # 4·0.005, 3·0.01, 2·0.03, then not below 0.06
    ([0.5, 0.9], [1.0, 1.0]), ([0.02, 0.02], [0.04, 0.04]),
    ([0.03, math.nan, 0.01], [0.03, math.nan, 0.02]),  # two tests, not three
    ([], []),
])  # fmt: skip
def test_holm(p_values, adjusted):
    assert holm(np.array(p_values, dtype=np.float64)) == pytest.approx(adjusted, nan_ok=True)
