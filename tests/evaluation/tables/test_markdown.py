"""Numbers as printed, and tables whose columns stay in line."""

import pytest

from protometry.evaluation.tables.markdown import interval, lines, number


@pytest.mark.parametrize(("value", "unit", "text"), [
    (0.0, "fraction", "0.00"), (0.00003, "fraction", "0.003"),  # small is not zero
    (0.0047, "fraction", "0.47"), (1.0, "fraction", "100.00"), (-0.02, "", "-0.02"), (0.00433, "fraction", "0.43"),
    (0.99999, "", "1.00"), (0.123456, "", "0.1235"), (1348.02, "count", "1348.02"),
    (float("nan"), "fraction", "undefined"), (None, "count", "undefined"),
])  # fmt: skip
def test_number(value, unit, text):
    assert number(value, unit) == text


def test_an_interval_needs_both_bounds():
    assert interval(0.1, 0.2, "fraction") == "[10.00, 20.00]"
    assert interval(0.1, None, "fraction") == interval(float("nan"), 0.2) == ""


def test_a_bar_does_not_break_a_table():
    table = lines(["a", "b"], [["x|y", ""], ["", "long cell"]], left=1)
    assert table == ["| a    |         b |", "|:-----|----------:|", "| x\\|y |           |", "|      | long cell |"]


def test_a_table_without_rows():
    assert lines(["metric", "n"], []) == ["| metric |   n |", "|:-------|----:|"]
