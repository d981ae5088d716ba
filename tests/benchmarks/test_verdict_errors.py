"""How often a sentence of an audit is wrong where the metric is as good as its control, or better by the margin."""

import pytest

from benchmarks.verdict_errors import CASES, verdicts
from protometry.evaluation.pages.audit_page import CLEAR
from protometry.metrics.alignment.random_peaks import AgainstRandomPeaks
from protometry.metrics.concepts.prediction import ConceptPrediction
from protometry.metrics.sanity.against_control import AgainstControl
from protometry.metrics.suite import ENTRIES, SUITES


def assert_rarely_wrong(key, name, draws, most):
    same, margin = (verdicts(key, CASES[key, name], lift, draws) for lift in (0.0, CLEAR))
    assert same["clear"] == margin["worse"] == 0
    assert max(same["worse"], margin["clear"]) <= most


FIRST = {key: (key, name) for key, name in reversed(CASES) if "rank" not in key}  # of every metric; others: tests/slow


@pytest.mark.parametrize(("key", "name"), FIRST.values())
def test_verdicts_are_rarely_wrong(key, name):
    """A share of .025, of each verdict: five errors or more in 40 draws come by chance once in 250 times."""
    assert_rarely_wrong(key, name, draws=40, most=4 / 40)


def test_every_sentence_with_a_control_is_simulated():
    compared = {
        key
        for key in SUITES["audit"]
        if issubclass(ENTRIES[key].metric, AgainstControl | AgainstRandomPeaks | ConceptPrediction)
    }
    assert compared - {"concepts/task_leakage", "concepts/interconcept_leakage"} == {key for key, _ in CASES}
