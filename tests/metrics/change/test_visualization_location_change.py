from functools import partial
from typing import ClassVar

import pytest

from protometry.metrics import VisualizationLocationChange
from protometry.metrics.functional import clip_saliency, visualization_location_change
from tests.metrics.change.changes import (
    WIDTH,
    MapChangeTests,
    at,
    case,
    change_record,
    image_first,
    share,
)
from tests.metrics.tester import updated


def filled_box(values):
    pixels = [(cell % WIDTH, cell // WIDTH) for cell, value in enumerate(values) if value > 0]
    if not pixels:
        return set()
    (x0, y0), (x1, y1) = (tuple(map(limit, *pixels)) if len(pixels) > 1 else pixels[0] for limit in (min, max))
    return {(x, y) for x in range(x0, x1 + 1) for y in range(y0, y1 + 1)}


def slow_vlc(one, other):
    return 1 - share(filled_box(one), filled_box(other))


class TestVisualizationLocationChange(MapChangeTests):
    cases: ClassVar = {
        "vlc": case("saliency", partial(VisualizationLocationChange, quantile=0.7), slow_vlc, quantile=0.7)
    }


def test_by_hand():
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
