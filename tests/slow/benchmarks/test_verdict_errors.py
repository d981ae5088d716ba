import pytest

from benchmarks.verdict_errors import CASES
from tests.benchmarks.test_verdict_errors import FIRST, assert_rarely_wrong

EVERY_METRIC = {key: (key, name) for key, name in CASES}  # in one case of each


@pytest.mark.parametrize(("key", "name"), EVERY_METRIC.values())
def test_verdicts_are_wrong_as_often_as_planned(key, name):
    assert_rarely_wrong(key, name, draws=400, most=0.025 + 3 * 0.0078)


@pytest.mark.parametrize(("key", "name"), [c for c in CASES if c not in (*FIRST.values(), *EVERY_METRIC.values())])
def test_verdicts_are_rarely_wrong(key, name):
    assert_rarely_wrong(key, name, draws=40, most=4 / 40)
