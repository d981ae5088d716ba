"""Overlap of saliency with the object and its background, and the difference of relevance between them."""

import math

import pytest
import torch

from protometry.metrics import BackgroundOverlap, InsideOutsideRelevanceDifference, ObjectOverlap
from protometry.metrics.functional import (
    background_overlap,
    inside_outside_relevance_difference,
    object_overlap,
)
from protometry.metrics.primitives import chunks
from tests.metrics.saliency import NO_OBJECT, image_mean, record
from tests.metrics.tester import NAN, Case, MetricTests, updated


def cut(values):
    """The 0.95 quantile of 30 values: place 27.55 of the sorted ones."""
    low, high = sorted(values)[27:29]
    return low + 0.55 * (high - low)


def usable(values, mask):
    """Whether a map has a region."""
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


# definition and undefined entries of the record: 3 maps flat or negative, 1 not finite, empty object, and, where a full
# object is not fine, full object
CLASSES = {
    ObjectOverlap: (object_share, 6),
    BackgroundOverlap: (background_share, 6),
    InsideOutsideRelevanceDifference: (difference, 8),
}
KERNELS = (object_overlap, background_overlap, inside_outside_relevance_difference)


class TestEveryClass(MetricTests):
    cases = {
        metric.__name__: Case(metric, record(), image_mean(definition, usable), NO_OBJECT, 22)
        for metric, (definition, _) in CLASSES.items()
    }


@pytest.mark.parametrize(("metric_class", "skipped"), [(metric, count) for metric, (_, count) in CLASSES.items()])
def test_what_is_undefined_is_counted(metric_class, skipped):
    assert updated(metric_class(), record()).summary()["skipped"] == skipped


def hand_case():
    """3×4, object = columns 0 and 1, relevance 4 and 2 inside, 1 outside."""
    saliency = torch.zeros(1, 1, 3, 4)
    saliency[0, 0, 0, 0], saliency[0, 0, 1, 1], saliency[0, 0, 2, 3] = 4, 2, 1
    masks = torch.zeros(1, 3, 4, dtype=torch.bool)
    masks[0, :, :2] = True
    return {"saliency": saliency, "object_masks": masks}


def test_hand_case():
    for metric_class, value in (
        (ObjectOverlap, 1 / 3),
        (BackgroundOverlap, 1 / 3),
        (InsideOutsideRelevanceDifference, 0.5),  # (1 + .5) / 2 - .25
    ):
        assert updated(metric_class(quantile=None), hand_case()).compute() == pytest.approx(value)


def test_clipping_once():
    # 12 pixels: the 0.95 quantile of the raw map keeps the 4 alone; of the kept values none is taken again
    data = hand_case()
    assert (updated(ObjectOverlap(), data).compute(), updated(BackgroundOverlap(), data).compute()) == (1 / 6, 0)
    assert updated(InsideOutsideRelevanceDifference(), data).compute() == 1
    assert updated(BackgroundOverlap(quantile=0.5), data).compute() == pytest.approx(1 / 3)


def test_range_and_ends():
    masks = hand_case()["object_masks"]
    inside = masks[:, None].float()
    assert [kernel(inside, masks).item() for kernel in KERNELS] == [1, 0, 1]
    assert [kernel(1 - inside, masks).item() for kernel in KERNELS] == [0, 1, -1]
    even = torch.ones(1, 1, 3, 4)
    assert [kernel(even, masks).item() for kernel in KERNELS] == [1, 0.5, 0]


def test_fractional_relevance_is_kept():
    saliency, masks = hand_case().values()
    for kernel in KERNELS:
        assert kernel(saliency / 8, masks).tolist() == kernel(saliency, masks).tolist()  # 0.5, 0.25, 0.125


@pytest.mark.parametrize("at_once", [1, 2 * 60])
def test_size_of_chunks(monkeypatch, at_once):
    generator = torch.Generator().manual_seed(4)
    saliency = torch.randn(5, 3, 4, 5, generator=generator).clamp(min=0)
    masks = torch.rand(5, 4, 5, generator=generator) < 0.5
    whole = inside_outside_relevance_difference(saliency, masks)
    monkeypatch.setattr(chunks, "CPU_ELEMENTS", at_once)
    assert torch.equal(inside_outside_relevance_difference(saliency, masks), whole)
