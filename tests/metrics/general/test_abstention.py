from typing import ClassVar

import pytest

from protometry.metrics import Abstention
from tests.metrics.general.logits import SINGLE
from tests.metrics.tester import Case, MetricTests, mean

ABSTAINED = {"abstained": SINGLE["abstained"]}  # three of thirteen


class TestAbstention(MetricTests):
    cases: ClassVar = {
        "abstention": Case(Abstention, ABSTAINED, lambda data: mean(data["abstained"].double().tolist()), {}, 0)
    }

    def test_undefined(self, case):
        """Every image has an answer: only without images there is none."""
        metric = case.build()
        metric.update(ABSTAINED["abstained"][:0])
        with pytest.warns(UserWarning, match="nothing it could measure among 0 entries"):
            assert metric.compute().isnan()
