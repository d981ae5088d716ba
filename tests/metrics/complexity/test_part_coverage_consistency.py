import math
from functools import partial

import torch

from protometry.metrics import PartCoverageConsistency
from protometry.metrics.functional import clip_saliency, part_coverage_consistency
from tests.metrics.tester import NAN, Case, MetricTests, mean, updated

UNITS, PARTS = 5, 4


def record():
    generator = torch.Generator().manual_seed(8)
    saliency = torch.randn(13, 2, 6, 7, generator=generator)
    saliency[3, 0], saliency[4, 1, 0, 0] = 2, NAN
    unit_ids = torch.stack([torch.randperm(UNITS - 1, generator=generator)[:2] for _ in range(13)])
    unit_ids[5, 1] = -1
    points = torch.rand(13, PARTS, 2, generator=generator) * torch.tensor([7.0, 6.0])
    visible = torch.rand(13, PARTS, generator=generator) < 0.6
    points[~visible] = NAN
    return {"saliency": saliency, "unit_ids": unit_ids, "part_locations": points, "part_visible": visible}


build = partial(PartCoverageConsistency, UNITS, PARTS, quantile=0.9)


build_published = partial(build, variant="quanproto")


def slow_counts(data):
    hits, visible = ([[0] * PARTS for _ in range(UNITS)] for _ in range(2))
    shown = [0] * UNITS
    clipped = clip_saliency(data["saliency"], 0.9)
    for i, ids in enumerate(data["unit_ids"].tolist()):
        for slot, unit in enumerate(ids):
            if unit < 0 or not data["saliency"][i, slot].isfinite().all():
                continue
            pixels = (clipped[i, slot] > 0).nonzero().tolist()
            shown[unit] += bool(pixels)
            for part in range(PARTS):
                if not data["part_visible"][i, part]:
                    continue
                visible[unit][part] += 1
                x, y = map(math.floor, data["part_locations"][i, part].tolist())
                rows, columns = [row for row, _ in pixels], [column for _, column in pixels]
                hits[unit][part] += bool(pixels and min(rows) <= y <= max(rows) and min(columns) <= x <= max(columns))
    return hits, visible, shown


def slow(data, variant="paper"):
    values = []
    for row, seen, images in zip(*slow_counts(data), strict=True):
        shares = [h / (v if variant == "paper" else images) for h, v in zip(row, seen, strict=True) if h]
        if any(seen):
            values.append(sum(shares) / len(shares) if shares else 0)
    return mean(values)


HIDDEN = {"part_visible": torch.zeros(13, PARTS, dtype=torch.bool)}


class TestBothVariants(MetricTests):
    cases = {
        "paper": Case(build, record(), slow, HIDDEN, UNITS + 2),
        "quanproto": Case(build_published, record(), partial(slow, variant="quanproto"), HIDDEN, UNITS + 2),
    }


def test_counts():
    metric = updated(build(), record())
    hits, visible, shown = slow_counts(record())
    assert (metric.hits.tolist(), metric.visible.tolist(), metric.shown.tolist()) == (hits, visible, shown)
    assert metric.summary()["n"] == 4  # unit 4 is in no top k
    assert metric.summary()["skipped"] == 1 + 2  # that unit, the empty slot and the map with NaN


def one_image(relevance=1.0, visible=(True, True, True)):
    """A region of pixels x, y in 1..2; parts inside, outside, inside."""
    saliency = torch.zeros(1, 1, 4, 4)
    saliency[0, 0, 1:3, 1:3] = relevance
    points = torch.tensor([[[1.0, 1.0], [3.0, 1.0], [2.9, 2.9]]])
    return {
        "saliency": saliency,
        "unit_ids": torch.tensor([[0]]),
        "part_locations": points,
        "part_visible": torch.tensor([visible]),
    }


def test_an_invisible_part_in_the_middle_shifts_nothing():
    metric = updated(PartCoverageConsistency(1, 3, quantile=None), one_image(visible=(True, False, True)))
    assert (metric.hits.tolist(), metric.visible.tolist()) == ([[1, 0, 1]], [[1, 0, 1]])
    metric = updated(PartCoverageConsistency(1, 3, quantile=None), one_image(visible=(False, True, True)))
    assert (metric.hits.tolist(), metric.visible.tolist()) == ([[0, 0, 1]], [[0, 1, 1]])


def test_by_hand():
    hits, visible, shown = torch.tensor([[3, 1, 0]]), torch.tensor([[4, 2, 4]]), torch.tensor([4])
    assert part_coverage_consistency(hits, visible, shown).tolist() == [0.625]  # (.75 + .5) / 2
    assert part_coverage_consistency(hits, visible, shown, "quanproto").tolist() == [0.5]  # (.75 + .25) / 2


def test_edges():
    two, none, both, once = torch.tensor([2]), *(torch.tensor([counts]) for counts in ([0, 0], [2, 2], [2, 1]))
    for variant in ("paper", "quanproto"):
        assert part_coverage_consistency(none, once, two, variant).tolist() == [0]
        assert part_coverage_consistency(none, none, two, variant).isnan().all()
        assert part_coverage_consistency(both, both, two, variant).tolist() == [1]
        # the region was always empty: parts in sight, none covered
        assert part_coverage_consistency(none, once, two * 0, variant).tolist() == [0]
    # a part in sight once and hit then is no worse for the other image
    assert part_coverage_consistency(once, once, two).tolist() == [1]
