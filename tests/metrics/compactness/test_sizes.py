"""How many units, places and shares a decision takes."""

import math
from functools import partial

import pytest
import torch

from protometry.metrics import DecisionShare, DistinctRegions, GlobalSize, LocalSize
from protometry.metrics.functional import decision_share, distinct_regions, global_size, local_size
from tests.metrics.tester import NAN, Case, MetricTests, mean, nowhere_finite, updated

WEIGHT = torch.tensor([[1.0, 0.0, -0.5, 0.0005], [0.0, 2.0, 0.0, 0.0]])
ALL = torch.ones(4, dtype=torch.bool)


def test_the_metric_reads_what_there_is():
    metric = GlobalSize()
    metric.update(None, torch.tensor([True, False, True]))  # without weights every active unit counts
    assert metric.compute() == 2
    metric.update(WEIGHT, ALL, presence=torch.tensor([[0, 1, 0, 0], [0, 1, 0, 0]]))
    assert metric.compute() == 1
    metric = GlobalSize(variant="quanproto")
    metric.update(WEIGHT, ALL)  # the third column is only negative
    assert metric.compute() == 2


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
def test_assigned_slots(dtype):
    # 50 prototypes in the pool, 10 classes with 2 slots that share prototypes 0..4
    presence = torch.zeros(10, 50, dtype=dtype)
    for index in range(10):
        presence[index, index % 5] = presence[index, (index + 1) % 5] = 1
    active = torch.ones(50, dtype=torch.bool)
    assert (global_size(torch.randn(10, 50), active, presence), global_size(None, active, presence)) == (5, 5)
    assert global_size(None, active, presence, variant="quanproto") == 5
    active[0] = False
    assert global_size(None, active, presence) == 4


def test_raw_assignment_logits():
    logits = torch.randn(10, 50, generator=torch.Generator().manual_seed(0))
    active = torch.ones(50, dtype=torch.bool)
    assert global_size(None, active, logits, threshold=1e-6, variant="quanproto") == 50
    with pytest.raises(ValueError, match="`presence` to be a 0/1 assignment, but got other values; take the argmax"):
        global_size(None, active, logits)
    with pytest.raises(ValueError, match="`presence` to be finite"):
        global_size(None, active, logits * math.nan)


ACTIVE = torch.tensor([True, True, False, True, True])


def record_local():
    scores = torch.randn(13, 5, generator=torch.Generator().manual_seed(2))
    scores[3], scores[7, 0], scores[8, 2] = -1, NAN, NAN
    return {"scores": scores}


def slow_size(row, active, threshold):
    chosen = [score for score, is_active in zip(row, active, strict=True) if is_active]
    if not chosen or not all(map(math.isfinite, chosen)) or max(chosen) <= 0:
        return NAN
    return sum(score / max(chosen) > threshold for score in chosen)


def slow_local(data):
    sizes = [slow_size(row, ACTIVE.tolist(), 0.1) for row in data["scores"].tolist()]
    return mean(sizes)


class TestLocalSize(MetricTests):
    cases = {
        "local_size": Case(
            partial(LocalSize, ACTIVE),
            record_local(),
            slow_local,
            {"scores": -record_local()["scores"].nan_to_num().abs()},
            13,
        )
    }

    def test_hand_case(self):
        # shares 1, .5, .15, .095 and one score alone: counts 3 and 1, and an image without a positive score
        metric = LocalSize()
        metric.update(torch.tensor([[2.0, 1.0, 0.3, 0.19], [1.0, 0.0, 0.0, 0.0], [-1.0, -1.0, -1.0, 0.0]]))
        summary = metric.summary()
        assert (summary["value"], summary["n"], summary["skipped"]) == (2, 2, 1)
        assert updated(LocalSize(threshold=0.4), {"scores": torch.tensor([[2.0, 1.0, 0.3]])}).compute() == 2


def test_strict_in_float64():
    # float32 0.1 is 0.100000001490116 in float64 and passes; float64 0.1 does not
    assert local_size(torch.tensor([[1.0, 0.1]])).tolist() == [2]
    assert local_size(torch.tensor([[1.0, 0.1]], dtype=torch.float64)).tolist() == [1]


def record_regions():
    generator = torch.Generator().manual_seed(4)
    saliency = torch.rand(13, 5, 4, 4, generator=generator)
    saliency[:, 2], saliency[:, 4] = saliency[:, 0], saliency[:, 1].flip(-1)
    saliency[3], saliency[5, 1:], saliency[7, 2, 0, 0] = 0.5, 0, math.nan
    return {"saliency": saliency}


def slow_count(maps, quantile=0.6):
    regions = []
    for pixels in maps:
        cut = sorted(pixels)[math.floor(quantile * (len(pixels) - 1))]
        if all(map(math.isfinite, pixels)) and max(pixels) > min(pixels):
            regions.append({place for place, value in enumerate(pixels) if value > max(cut, 0)})
    places = []
    for region in filter(None, regions):
        if all(len(region & other) / len(region | other) <= 0.5 for other in places):
            places.append(region)
    return len(places)


def slow_regions(data):
    counts = list(filter(None, map(slow_count, data["saliency"].flatten(2).tolist())))
    return mean(counts)


class TestDistinctRegions(MetricTests):
    cases = {
        "distinct_regions": Case(
            partial(DistinctRegions, quantile=0.6),
            record_regions(),
            slow_regions,
            nowhere_finite(record_regions()),
            skipped=13,
        )
    }


def strips(*ends):
    """A row of ten pixels for each unit, positive from the first to the last of ``ends``."""
    maps = torch.zeros(1, len(ends), 1, 10)
    for unit, (first, last) in enumerate(ends):
        maps[0, unit, 0, first : last + 1] = 1 + unit
    return maps


@pytest.mark.parametrize(("regions", "count"), [
    ([(0, 3), (0, 3), (0, 3)], 1), ([(0, 1), (4, 5), (8, 9)], 3), ([(0, 3), (1, 4)], 1),  # 3 of 5 pixels in common
    ([(0, 2), (1, 3)], 2),  # 2 of 4: not above one half
    ([(0, 3), (1, 4), (2, 5)], 2),  # the third is near the second, which is no place, not near the first: 2 of 6
    ([(1, 4), (0, 3), (2, 5)], 1),  # the order decides what a place is: both ends are near the middle
    ([(1, 0), (0, 3)], 1),  # an empty region is not a place
    ([(1, 0)], math.nan),
])  # fmt: skip
def test_regions_by_hand(regions, count):
    assert distinct_regions(strips(*regions)).tolist() == pytest.approx([count], nan_ok=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_values_beside_their_sign_do_not_matter(dtype):
    maps = strips((0, 3), (1, 4), (2, 5))
    noncontiguous = (7 * maps).to(dtype).transpose(2, 3).contiguous().transpose(2, 3)
    assert (distinct_regions(noncontiguous).tolist(), distinct_regions(maps, threshold=0.2).tolist()) == ([2], [1])
    assert distinct_regions(torch.zeros(0, 5, 4, 4)).shape == (0,)
    assert distinct_regions(torch.zeros(2, 0, 4, 4)).isnan().all()  # no active unit


def record_share():
    generator = torch.Generator().manual_seed(3)
    contributions = torch.randn(13, 6, generator=generator)
    contributions[4], contributions[9, 2], contributions[11, 5] = 0, math.nan, math.inf
    return {"contributions": contributions, "shown": torch.rand(13, 6, generator=generator) < 0.4}


def slow_share(data):
    shares = []
    for values, shown in zip(data["contributions"].tolist(), data["shown"].tolist(), strict=True):
        total = sum(map(abs, values))
        if math.isfinite(total) and total > 0:
            shares.append(sum(abs(value) for value, is_shown in zip(values, shown, strict=True) if is_shown) / total)
    return mean(shares)


class TestDecisionShare(MetricTests):
    cases = {"decision_share": Case(DecisionShare, record_share(), slow_share, nowhere_finite(record_share()), 13)}


def test_share_by_hand():
    # (4 + 2) / (4 + 2 + 1 + 1) = 3/4, whatever the signs, the scale and the order of units; nothing shown, all shown
    values = torch.tensor([[4.0, -2.0, 1.0, -1.0]])
    shown = torch.tensor([[True, True, False, False]])
    for same, those in ((values, shown), (-4 * values, shown), (values.flip(1), shown.flip(1))):
        assert decision_share(same, those).tolist() == [0.75]
    assert decision_share(values.expand(2, 4), torch.tensor([[False] * 4, [True] * 4])).tolist() == [0, 1]
    assert decision_share(values[:, :0], shown[:, :0]).isnan().all()  # no units
    assert decision_share(values[:0], shown[:0]).shape == (0,)
