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


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("sizes", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_the_proven_best(benchmark, sizes, seed):
    features, classes, size, per_class = benchmark.PROVEN[sizes]
    constants = benchmark.draw(features, classes, seed)
    problem, ours = benchmark.searched(constants, size, per_class)
    value, bound = benchmark.solve(problem, math.inf)
    assert value == pytest.approx(bound)
    assert ours == pytest.approx(value, rel=1e-9)
