import math
from typing import ClassVar

import torch

from protometry.metrics import DecisionShare
from protometry.metrics.functional import decision_share
from tests.metrics.tester import Case, MetricTests, nowhere_finite


def record():
    generator = torch.Generator().manual_seed(3)
    contributions = torch.randn(13, 6, generator=generator)
    contributions[4], contributions[9, 2], contributions[11, 5] = 0, math.nan, math.inf
    return {"contributions": contributions, "shown": torch.rand(13, 6, generator=generator) < 0.4}


def slow(data):
    shares = []
    for values, shown in zip(data["contributions"].tolist(), data["shown"].tolist(), strict=True):
        total = sum(map(abs, values))
        if math.isfinite(total) and total > 0:
            shares.append(sum(abs(value) for value, is_shown in zip(values, shown, strict=True) if is_shown) / total)
    return sum(shares) / len(shares) if shares else math.nan


class TestDecisionShare(MetricTests):
    cases: ClassVar = {"decision_share": Case(DecisionShare, record(), slow, nowhere_finite(record()), 13)}


def test_by_hand():
    # (4 + 2) / (4 + 2 + 1 + 1) = 3/4, whatever the signs, the scale and the order of units; nothing shown, all shown
    values = torch.tensor([[4.0, -2.0, 1.0, -1.0]])
    shown = torch.tensor([[True, True, False, False]])
    for same, those in ((values, shown), (-4 * values, shown), (values.flip(1), shown.flip(1))):
        assert decision_share(same, those).tolist() == [0.75]
    assert decision_share(values.expand(2, 4), torch.tensor([[False] * 4, [True] * 4])).tolist() == [0, 1]
    assert decision_share(values[:, :0], shown[:, :0]).isnan().all()  # no units
    assert decision_share(values[:0], shown[:0]).shape == (0,)
