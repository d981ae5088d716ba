"""Success of a shortcut over its control, and the units that a stamp lifts out of the range of their scores."""

import math
import statistics

import pytest
import torch
from scipy.stats import t as student

from protometry.metrics import ShortcutSuccess, ShortcutUnits
from tests.metrics.tester import NAN, Case, MetricTests, mean, nowhere_finite, updated

STAMP = 1
PREDICTED = {
    "labels": torch.tensor([1, 0, 0, 2, 2, 0, 2]),
    "predictions": torch.tensor([1, 1, 0, 2, 2, -1, 0]),  # the first two do not count
    "stamped_predictions": torch.tensor([1, 1, 1, 1, 2, 1, -1]),
    "plain_predictions": torch.tensor([1, 1, 0, 1, 1, 0, 0]),
}


def slow_success(record, of="stamped_predictions"):
    rows = zip(*(record[name].tolist() for name in ("labels", "predictions", of)), strict=True)
    return mean(float(shown == STAMP) for label, before, shown in rows if STAMP not in (label, before))


ACTIVE = torch.tensor([True, True, False, True, True, True])


def scores():
    """Of eleven images: units that rise by 3, by 1.5 with a spread of 1, and by 9 without being active; ones that
    rise alike from a constant, not, and, with one image that is not finite, by far."""
    generator = torch.Generator().manual_seed(2)
    plain = torch.randn(11, 6, generator=generator)
    plain[:, 3] = 0.5
    stamped = plain + torch.tensor([3.0, 1.5, 9.0, 0.25, 0.0, 20.0]) + 0.1 * torch.randn(11, 6, generator=generator)
    stamped[:, 3] = 0.75
    stamped[4, 5] = NAN
    return {"stamped_scores": stamped, "plain_scores": plain}


def slow_units(record):
    found = []
    for unit in ACTIVE.nonzero().flatten().tolist():
        columns = (record[name][:, unit].double().tolist() for name in ("stamped_scores", "plain_scores"))
        pairs = [(one, other) for one, other in zip(*columns, strict=True) if math.isfinite(one - other)]
        if len(pairs) > 1:
            rises, spread = [one - other for one, other in pairs], statistics.stdev(other for _, other in pairs)
            quantile = student.ppf(1 - 0.05 / int(ACTIVE.sum()) / 2, len(pairs) - 1)
            low = statistics.mean(rises) - quantile * statistics.stdev(rises) / math.sqrt(len(pairs))
            found.append(float(low > 2 * spread))
    return mean(found)


class TestBoth(MetricTests):
    cases = {
        "success": Case(
            lambda: ShortcutSuccess(STAMP),
            PREDICTED,
            slow_success,
            {"predictions": torch.full((7,), STAMP)},
            7,
        ),
        "units": Case(lambda: ShortcutUnits(ACTIVE), scores(), slow_units, nowhere_finite(scores()), 6),
    }


def test_success_is_compared_with_the_plain_patch():
    """Of five images, three become the class with the stamp, two with the plain patch."""
    summary = updated(ShortcutSuccess(STAMP), PREDICTED).summary()
    assert (summary["n"], summary["skipped"]) == (5, 2)
    assert (summary["value"], summary["plain"]) == pytest.approx((0.6, 0.4))
    assert summary["lift_over_plain"] == pytest.approx(0.2)
    assert -1 <= summary["lift_over_plain_low"] < 0.2 < summary["lift_over_plain_high"] <= 1


def test_which_units_rise_most():
    """Without a spread first, then 20, 3 and 1.5 standard deviations; the inactive one, which rises by 9, never."""
    metric = updated(ShortcutUnits(ACTIVE), scores())
    assert metric.values().tolist() == pytest.approx([1, 0, NAN, 1, 0, 1], nan_ok=True)
    assert metric.summary()["most_raised"] == [3, 5, 0]
    falling = {"stamped_scores": scores()["plain_scores"] - 1, "plain_scores": scores()["plain_scores"]}
    assert updated(ShortcutUnits(ACTIVE), falling).summary()["most_raised"] == []
