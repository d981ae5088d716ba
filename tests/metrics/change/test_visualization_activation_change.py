from functools import partial
from typing import ClassVar

import pytest
import torch

from protometry.metrics import VisualizationActivationChange
from protometry.metrics.change.visualization_activation_change import largest_first
from protometry.metrics.functional import clip_saliency, visualization_activation_change
from tests.metrics.change.changes import (
    MapChangeTests,
    case,
    change_record,
    clipped,
    image_first,
    noisy_maps,
    one,
    ratio,
)
from tests.metrics.tester import NAN, updated


def slow_vac(one, other):
    if max(one) <= 0 or max(other) <= 0:
        return NAN
    return ratio(sorted(one, reverse=True), sorted(other, reverse=True))


class TestVisualizationActivationChange(MapChangeTests):
    cases: ClassVar = {
        "vac": case("saliency", partial(VisualizationActivationChange, quantile=0.7), slow_vac, quantile=0.7)
    }


def test_by_hand():
    # sorted (4, 2) against (1, 1): 2 of 6
    value = visualization_activation_change(one([[4.0, 0], [0, 2]]), one([[1.0, 1], [0, 0]]))
    assert value.item() == pytest.approx(2 / 3)


def test_place_does_not_matter():
    maps = clipped(noisy_maps(0))
    for moved in (maps.flip(-1), maps.roll(3, dims=-2)):
        assert visualization_activation_change(maps, moved).nansum() == 0


def test_more_positive_pixels_than_a_twentieth():
    # 28 of 28 pixels; sorted halves: 1 - 1/2
    maps = torch.arange(1.0, 29.0).view(1, 1, 4, 7)
    assert visualization_activation_change(maps, maps.flip(-1) / 2).item() == 0.5


def test_only_zeros_are_left_unsorted():
    sides = clipped(noisy_maps(1)), clipped(noisy_maps(2))
    for side, short in zip(sides, largest_first(*sides), strict=True):
        whole = side.flatten(2).sort(descending=True).values
        assert torch.equal(short, whole[..., : short.shape[-1]])
        assert not whole[..., short.shape[-1] :].any()
    elsewhere = largest_first(*(side.to("meta") for side in sides))
    assert [side.shape for side in elsewhere] == [(13, 3, 28)] * 2


def test_maps_are_clipped_once():
    # the 5 % of a map that remain are compared whole: clipping twice would drop most of them
    maps = torch.arange(1.0, 101.0).view(1, 1, 10, 10)
    once = clip_saliency(maps)
    assert (once > 0).sum() == 5
    for metric, saliency in ((VisualizationActivationChange(), maps), (VisualizationActivationChange(None), once)):
        assert updated(metric, {"saliency": saliency, "perturbed_saliency": saliency / 2}).compute() == 0.5
    record = {name: clip_saliency(maps, 0.6) for name, maps in change_record("saliency").items() if name != "valid"}
    expected = image_first(visualization_activation_change(*record.values()).tolist())
    assert updated(VisualizationActivationChange(None), record).compute().item() == pytest.approx(expected, abs=1e-12)
