"""Area under the curves of deletion and insertion, and its lift over the control."""

from itertools import pairwise

import pytest
import torch

from protometry.metrics import Deletion, Insertion
from tests.metrics.tester import NAN, Case, MetricTests, mean, nowhere_finite, updated


def curves(seed):
    """Of two units of eleven images: scores that grow, that are not positive or not finite, and empty slots."""
    scores = torch.rand(11, 2, 5, generator=torch.Generator().manual_seed(seed)) - 0.1
    scores[:, :, 0] = scores[:, :, 0].abs()
    scores[1, 0, 0], scores[2, 1, 0], scores[3, 0, 2], scores[4, 1, 4], scores[5] = 0, -0.5, torch.inf, NAN, NAN
    return scores


def slow_area(row):
    if not all(torch.tensor(row).isfinite()) or row[0] <= 0:
        return NAN
    kept = [min(max(score, 0) / row[0], 1) for score in row]
    return sum((one + other) / 2 for one, other in pairwise(kept)) / (len(row) - 1)


def slow_values(scores):
    return [[slow_area(row) for row in units] for units in scores.tolist()]


def slow_mean(record, of=0):
    """Mean of the values (0), or of the control (1), of units for which both are defined."""
    pairs = zip(*map(slow_values, record.values()), strict=True)
    return mean(mean(pair[of] + 0 * pair[1 - of] for pair in zip(*units, strict=True)) for units in pairs)


RECORD = {"removal_scores": curves(1), "shifted_removal_scores": curves(2).roll(3, dims=0)}


class TestBoth(MetricTests):
    cases = {kind.__name__: Case(kind, RECORD, slow_mean, nowhere_finite(RECORD), 22) for kind in (Deletion, Insertion)}

    def test_the_control_is_of_the_same_units(self, case):
        summary = updated(case.build(), case.record).summary()
        assert summary["shifted"] == pytest.approx(slow_mean(case.record, of=1))
        assert summary["lift_over_shifted"] == pytest.approx(summary["value"] - summary["shifted"])
        assert summary["skipped"] == 11  # six of either record, one of which is the same unit

    def test_by_hand(self, case):
        """Two images: 3/4 and 1/4, controls 1/4 and 1/4, whose differences 1/2 and 0 have a mean of 1/4."""
        slow, fast = torch.tensor([[[2.0, 2.0, 0.0]]]), torch.tensor([[[2.0, 0.0, -1.0]]])
        metric = case.build()
        metric.update(torch.cat([slow, fast]), torch.cat([fast, fast]))
        summary = metric.summary()
        assert (summary["value"], summary["shifted"], summary["lift_over_shifted"]) == (0.5, 0.25, 0.25)
        assert -1 <= summary["lift_over_shifted_low"] < 0.25 < summary["lift_over_shifted_high"] <= 1
