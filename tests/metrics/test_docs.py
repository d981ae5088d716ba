"""The metric of the guide passes the tests that the guide gives it."""

import sys
from types import SimpleNamespace

from tests.pages import run_page


def test_the_metric_of_the_guide(monkeypatch):
    names = run_page("add_a_metric.md")
    monkeypatch.setitem(sys.modules, names["__name__"], SimpleNamespace(**names))  # where pickle looks for its class
    names["test_by_hand"]()
    tests, (case,) = names["TestActiveShare"](), names["TestActiveShare"].cases.values()
    tests.test_any_batches_give_the_value_of_the_oracle(case)
    tests.test_protocol(case)
    tests.test_undefined(case)
