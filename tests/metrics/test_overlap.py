"""Metrics of saliency against the object: overlap and localisation."""

import math
from typing import ClassVar

import pytest
import torch

from metrics import (
    BackgroundOverlap,
    EnergyPointingGame,
    InsideOutsideRelevanceDifference,
    ObjectOverlap,
    PointingGame,
    RegionIntersectionOverUnion,
)
from metrics.functional import background_overlap, clip_saliency
from tests.metrics.tester import Case, MetricTests, updated

NAN = math.nan


def record():
    generator = torch.Generator().manual_seed(5)
    saliency = torch.randn(11, 2, 5, 6, generator=generator)
    masks = torch.rand(11, 5, 6, generator=generator) < 0.4
    saliency[1, 0], saliency[2], masks[3], masks[4] = 1, -saliency[2].abs(), False, True
    saliency[5, 1, 2, 2] = NAN
    return {"saliency": saliency, "object_masks": masks}


def cut(values):
    """The 0.95 quantile of 30 values: place 27.55 of the sorted ones."""
    low, high = sorted(values)[27:29]
    return low + 0.55 * (high - low)


def usable(values):
    return all(map(math.isfinite, values)) and max(values) > 0 and max(values) - min(values) > 1e-5 * max(values)


def object_share(v, m):
    return sum(a > cut(v) and b for a, b in zip(v, m, strict=True)) / sum(m) if any(m) else NAN


def background_share(v, m):
    region = [b for a, b in zip(v, m, strict=True) if a > cut(v)]
    return 1 - sum(region) / len(region) if any(m) else NAN


def difference(v, m):
    sides = []
    for side in (True, False):
        kept = [a / max(v) for a, b in zip(v, m, strict=True) if a > cut(v) and b == side]
        sides.append(sum(kept) / len(kept) if kept else 0)
    return sides[0] - sides[1] if any(m) and not all(m) else NAN


def peak_hit(v, m):
    return float(m[v.index(max(v))]) if any(m) and not all(m) else NAN


def energy(v, m):
    inside = sum(max(a, 0) for a, b in zip(v, m, strict=True) if b)
    return inside / sum(max(a, 0) for a in v) if any(m) and not all(m) else NAN


def region_share(v, m):
    shared = sum(a > cut(v) and b for a, b in zip(v, m, strict=True))
    return shared / sum(a > cut(v) or b for a, b in zip(v, m, strict=True)) if any(m) and not all(m) else NAN


def image_mean(value):
    def oracle(data):
        means = []
        for maps, mask in zip(data["saliency"].double().flatten(2), data["object_masks"].flatten(1), strict=True):
            entries = [value(row, mask.tolist()) for row in maps.tolist() if usable(row)]
            entries = [entry for entry in entries if math.isfinite(entry)]
            if entries:
                means.append(sum(entries) / len(entries))
        return sum(means) / len(means) if means else NAN

    return oracle


# kernel and undefined entries of the record: 3 maps flat or negative, 1 not finite, empty object, and, unless a full
# object is fine, full object
CLASSES = {
    ObjectOverlap: (object_share, 6),
    BackgroundOverlap: (background_share, 6),
    InsideOutsideRelevanceDifference: (difference, 8),
    PointingGame: (peak_hit, 8),
    EnergyPointingGame: (energy, 8),
    RegionIntersectionOverUnion: (region_share, 8),
}
NO_OBJECT = {"object_masks": torch.zeros(11, 5, 6, dtype=torch.bool)}


class TestEveryClass(MetricTests):
    cases: ClassVar = {
        metric.__name__: Case(metric, record(), image_mean(oracle), NO_OBJECT, 22)
        for metric, (oracle, _) in CLASSES.items()
    }


@pytest.mark.parametrize(("metric_class", "skipped"), [(metric, count) for metric, (_, count) in CLASSES.items()])
def test_what_is_undefined_is_counted(metric_class, skipped):
    assert updated(metric_class(), record()).summary()["skipped"] == skipped


def hand_case():
    saliency = torch.zeros(1, 1, 3, 4)
    saliency[0, 0, 0, 0], saliency[0, 0, 1, 1], saliency[0, 0, 2, 3] = 4, 2, 1
    masks = torch.zeros(1, 3, 4, dtype=torch.bool)
    masks[0, :, :2] = True
    return {"saliency": saliency, "object_masks": masks}


def test_hand_cases():
    for metric_class, value in (
        (ObjectOverlap, 1 / 3),
        (BackgroundOverlap, 1 / 3),
        (InsideOutsideRelevanceDifference, 0.5),
    ):
        assert updated(metric_class(quantile=None), hand_case()).compute() == pytest.approx(value)
    data = {
        "saliency": torch.tensor([[[[1.0, 3.0, 0.0], [1.0, 0.0, -5.0]]]]),
        "object_masks": torch.tensor([[[True, False, False], [True, False, False]]]),
    }
    for metric_class, value in ((PointingGame, 0), (EnergyPointingGame, 0.4), (RegionIntersectionOverUnion, 0)):
        assert updated(metric_class(), data).compute() == value


def test_clipping_once():
    # 12 pixels: the 0.95 quantile of the raw map keeps the 4 alone; of the kept values none is taken again
    data = hand_case()
    assert updated(ObjectOverlap(), data).compute() == 1 / 6
    assert updated(BackgroundOverlap(), data).compute() == 0
    assert updated(InsideOutsideRelevanceDifference(), data).compute() == 1
    assert updated(BackgroundOverlap(quantile=0.5), data).compute() == pytest.approx(1 / 3)
    data = record()
    kernel = background_overlap(clip_saliency(data["saliency"]), data["object_masks"])
    metric = updated(BackgroundOverlap(), data)
    assert metric.compute() == pytest.approx(kernel.nanmean(dim=1).nanmean().item())


def test_errors():
    with pytest.raises(ValueError, match="`quantile` to lie strictly between 0 and 1, but got 95"):
        updated(ObjectOverlap(quantile=95), hand_case())
