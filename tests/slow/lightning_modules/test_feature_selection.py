"""Selections of more features than the default suite has time for."""

import pytest

from tests.lightning_modules.test_feature_selection import assert_best


@pytest.mark.parametrize(("sizes", "seed"), [((80, 30, 12, 3), 0), ((80, 30, 12, 3), 1), ((100, 40, 12, 3), 0)])
def test_the_best_that_a_solver_proves(sizes, seed):
    assert_best(sizes, seed)
