"""The metric of the guide passes the tests that the guide gives it; the words of all metrics say what the code says."""

import sys
from types import SimpleNamespace

from protometry.metrics.suite import ENTRIES, build
from tests.metrics.test_suite import facts
from tests.pages import run_page


def test_the_metric_of_the_guide(monkeypatch):
    names = run_page("add_a_metric.md")
    monkeypatch.setitem(sys.modules, names["__name__"], SimpleNamespace(**names))  # where pickle looks for its class
    names["test_by_hand"]()
    tests, (case,) = names["TestActiveShare"](), names["TestActiveShare"].cases.values()
    tests.test_any_batches_give_the_value_of_the_oracle(case)
    tests.test_protocol(case)
    tests.test_undefined(case)


def test_entries_describe_the_metrics_as_they_are_built():
    for key, metric in build(["all"], facts())[0].items():
        part, kind = ENTRIES[key].part, ENTRIES[key].metric
        if part is None:
            for fact in ("unit", "higher_is_better", "averaged_over"):
                assert getattr(metric, fact) == getattr(kind, fact), key
            assert kind.value_range[0] <= metric.value_range[0] <= metric.value_range[1] <= kind.value_range[1], key
        words = ENTRIES[key].words
        assert min(map(len, (words.question, words.name, words.formula, words.source, words.misread))) > 3, key
