"""Explanations that sum to zero or less."""

from typing import ClassVar

from protometry.metrics import TotalsNotPositive
from tests.metrics.funnybirds.birds import normal
from tests.metrics.tester import Case, MetricTests, mean, nowhere_finite


def slow_totals(record):
    return mean([float(total <= 0) for total in record["label_totals"].tolist()])


class TestTotalsNotPositive(MetricTests):
    record: ClassVar = {"label_totals": normal(8, 13).round()}
    cases: ClassVar = {"totals": Case(TotalsNotPositive, record, slow_totals, nowhere_finite(record), 13)}
