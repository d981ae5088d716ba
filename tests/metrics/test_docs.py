"""The metric of the guide passes the tests that the guide gives it; the page of all metrics says what the code says."""

import math
import re
import sys
from types import SimpleNamespace

from metrics.entries import ENTRIES
from metrics.suite import build, resolve
from reports.results.markdown import arrow
from tests.metrics.test_suite import facts
from tests.pages import DOCS, run_page


def test_the_metric_of_the_guide(monkeypatch):
    names = run_page("add_a_metric.md")
    monkeypatch.setitem(sys.modules, names["__name__"], SimpleNamespace(**names))  # where pickle looks for its class
    names["test_by_hand"]()
    tests, (case,) = names["TestActiveShare"](), names["TestActiveShare"].cases.values()
    tests.test_any_batches_give_the_value_of_the_oracle(case)
    tests.test_protocol(case)
    tests.test_undefined(case)


def printed_range(low, high):
    left = "(−∞" if low == -math.inf else f"[{low:.4g}".replace("-", "−")
    return left + (", ∞)" if high == math.inf else f", {high:.4g}]")


def test_the_page_of_all_metrics():
    rows = re.findall(r"^\| `(\w+/[\w@]+)` \|(.*)\|$", (DOCS / "metrics.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(key for key, _ in rows) == sorted(resolve(["all"]))
    for key, row in rows:
        name, formula, *told, source, misread = (cell.strip() for cell in row.split("|"))
        metric, part = build([key], facts())[0][key], ENTRIES[key].part
        unit = metric.units[part] if part else metric.unit
        ends = metric.value_ranges[part] if part else metric.value_range
        stated = {"higher_is_better": metric.higher_is_better, "averaged_over": metric.averaged_over}
        stated |= getattr(metric, "exceptions", {}).get(part, {})
        expected = [printed_range(*ends), arrow(stated["higher_is_better"]), unit, stated["averaged_over"]]
        assert told == expected, key
        assert min(map(len, (name, formula, source, misread))) > 3, key
