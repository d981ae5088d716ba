"""The selection of features reaches what a solver has proven to be the best."""

import importlib.util
import math
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "feature_selection.py"


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("feature_selection_benchmark", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("sizes", "seed"),
    [(0, 0), (0, 1), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((1, 0), (1, 1), (2, 0)))],
)
def test_the_proven_best(benchmark, sizes, seed):
    features, classes, size, per_class = benchmark.PROVEN[sizes]
    constants = benchmark.draw(features, classes, seed)
    problem, ours = benchmark.searched(constants, size, per_class)
    value, bound = benchmark.solve(problem, math.inf)
    assert value == pytest.approx(bound)
    assert ours == pytest.approx(value, rel=1e-9)
