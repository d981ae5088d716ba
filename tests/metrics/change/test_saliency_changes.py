"""Changes of clipped saliency."""

from functools import partial

import pytest
import torch

from protometry.metrics import VisualizationActivationChange, VisualizationLocationChange
from protometry.metrics.change.visualization_activation_change import largest_first
from protometry.metrics.functional import clip_saliency, visualization_activation_change, visualization_location_change
from tests.metrics.change.changes import (
    WIDTH,
    MapChangeTests,
    at,
    case,
    change_record,
    clipped,
    image_first,
    noisy_maps,
    one,
    ratio,
    share,
)
from tests.metrics.tester import NAN, updated


def filled_box(values):
    pixels = [(cell % WIDTH, cell // WIDTH) for cell, value in enumerate(values) if value > 0]
    if not pixels:
        return set()
    (x0, y0), (x1, y1) = (tuple(map(limit, *pixels)) if len(pixels) > 1 else pixels[0] for limit in (min, max))
    return {(x, y) for x in range(x0, x1 + 1) for y in range(y0, y1 + 1)}


def slow_vlc(one, other):
    return 1 - share(filled_box(one), filled_box(other))


class TestVisualizationLocationChange(MapChangeTests):
    cases = {"vlc": case("saliency", partial(VisualizationLocationChange, quantile=0.7), slow_vlc, quantile=0.7)}


def test_vlc_by_hand():
    # boxes (0, 0, 1, 1) and (1, 1, 2, 2) share 1 of 7 pixels, the regions 1 of 3
    saliency, perturbed = at(4, 4, (0, 0), (1, 1)), at(4, 4, (1, 1), (2, 2))
    assert visualization_location_change(saliency, perturbed).item() == pytest.approx(6 / 7)
    assert visualization_location_change(saliency, perturbed, "mask").item() == pytest.approx(2 / 3)


@pytest.mark.parametrize("region", ["box", "mask"])
def test_ends(region):
    assert visualization_location_change(at(4, 6, (1, 5)), at(4, 6, (1, 5)), region).item() == 0
    assert visualization_location_change(at(4, 6, (1, 5)), at(4, 6, (3, 0)), region).item() == 1
    apart = visualization_location_change(at(9, 9, (0, 0), (1, 1)), at(9, 9, (7, 7), (8, 8)), region)
    assert apart.item() == 1


@pytest.mark.parametrize("region", ["box", "mask"])
def test_empty_is_undefined(region):
    for saliency, perturbed in ((at(3, 3), at(3, 3, (0, 0))), (at(3, 3, (0, 0)), at(3, 3)), (at(3, 3), at(3, 3))):
        assert visualization_location_change(saliency, perturbed, region).isnan()


def test_options_reach_the_kernel():
    raw = {name: maps for name, maps in change_record("saliency").items() if name != "valid"}
    regions = {name: clip_saliency(maps, 0.6) for name, maps in raw.items()}
    for metric, record, region in (
        (VisualizationLocationChange(None, "mask"), regions, "mask"),
        (VisualizationLocationChange(None), regions, "box"),
        (VisualizationLocationChange(0.6), raw, "box"),
    ):
        expected = image_first(visualization_location_change(*regions.values(), region).tolist())
        assert updated(metric, record).compute().item() == pytest.approx(expected, abs=1e-12)


def slow_vac(one, other):
    if max(one) <= 0 or max(other) <= 0:
        return NAN
    return ratio(sorted(one, reverse=True), sorted(other, reverse=True))


class TestVisualizationActivationChange(MapChangeTests):
    cases = {"vac": case("saliency", partial(VisualizationActivationChange, quantile=0.7), slow_vac, quantile=0.7)}


def test_vac_by_hand():
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
