"""Changes of the maps of prototypes."""

import pytest
import torch

from protometry.metrics import PrototypeActivationChange, PrototypeActivationLocationChange, PrototypeLocationChange
from protometry.metrics.functional import (
    prototype_activation_change,
    prototype_activation_location_change,
    prototype_location_change,
)
from tests.metrics.change.changes import (
    MapChangeTests,
    at,
    case,
    change_record,
    image_first,
    noisy_maps,
    one,
    ratio,
    slow_palc,
    slow_plc,
)
from tests.metrics.tester import updated


class TestPrototypeLocationChange(MapChangeTests):
    cases = {"plc": case("maps", PrototypeLocationChange, slow_plc)}


def test_non_square_grid():
    # (row 0, col 1) to (row 1, col 4): 3 columns and 1 row; the longest way on 2 x 5 cells is 4 + 1
    assert prototype_location_change(at(2, 5, (0, 1)), at(2, 5, (1, 4))).item() == 4
    assert prototype_location_change(at(2, 5, (0, 1)), at(2, 5, (1, 4)), relative=True).item() == 0.8
    assert prototype_location_change(at(2, 5, (0, 0)), at(2, 5, (1, 4)), relative=True).item() == 1
    assert prototype_location_change(at(5, 2, (0, 0)), at(5, 2, (4, 1))).item() == 5


def test_one_cell():
    assert prototype_location_change(at(1, 1, (0, 0)), at(1, 1, (0, 0))).item() == 0
    assert prototype_location_change(at(1, 1, (0, 0)), at(1, 1, (0, 0)), relative=True).isnan()


def test_relative():
    record, metric = change_record("maps"), PrototypeLocationChange(relative=True)
    assert [PrototypeLocationChange().unit, metric.unit] == ["cells", "fraction"]
    values = prototype_location_change(record["maps"], record["perturbed_maps"], relative=True)
    expected = image_first(values.tolist(), record["valid"].tolist())
    assert updated(metric, record).compute().item() == pytest.approx(expected, abs=1e-12)


class TestPrototypeActivationLocationChange(MapChangeTests):
    cases = {"palc": case("maps", PrototypeActivationLocationChange, slow_palc)}


def test_by_hand():
    # {1, .6} against {1, .9}: one of three shared
    value = prototype_activation_location_change(one([[0, 1], [0.6, 0.2]]), one([[1, 0.9], [0, 0]]))
    assert value.item() == pytest.approx(2 / 3)


def test_threshold():
    # above 0.25 of the range: {1, .6} against {1, .9, .3}; above 0.75: {1} against {1, .9}
    maps, perturbed = one([[0, 1], [0.6, 0.2]]), one([[0.9, 1], [0.3, 0.0]])
    for threshold, expected in ((0.25, 1 / 3), (0.75, 1 / 2)):
        assert prototype_activation_location_change(maps, perturbed, threshold).item() == pytest.approx(expected)
        metric = updated(PrototypeActivationLocationChange(threshold), {"maps": maps, "perturbed_maps": perturbed})
        assert metric.compute().item() == pytest.approx(expected)


def test_each_map_on_its_own_scale():
    maps = noisy_maps(0)
    scaled = maps * torch.logspace(-3, 3, len(maps))[:, None, None, None]
    assert prototype_activation_location_change(maps, scaled).nansum() == 0


def slow_pac(one, other):
    return ratio([max(value, 0) for value in one], [max(value, 0) for value in other])


class TestPrototypeActivationChange(MapChangeTests):
    cases = {"pac": case("maps", PrototypeActivationChange, slow_pac)}


def test_place_matters_but_in_the_published_code():
    # nothing is shared: 1; sorted, 2 + 1 of 3 + 2 are: 1 - 3/5
    maps, perturbed = one([[3.0, 1, 0, 0]]), one([[0.0, 0, 2, 2]])
    assert prototype_activation_change(maps, perturbed).item() == 1
    assert prototype_activation_change(maps, perturbed, variant="quanproto").item() == pytest.approx(0.4)
    record = change_record("maps")
    values = prototype_activation_change(record["maps"], record["perturbed_maps"], "quanproto")
    metric = updated(PrototypeActivationChange("quanproto"), record)
    expected = image_first(values.tolist(), record["valid"].tolist())
    assert metric.compute().item() == pytest.approx(expected, abs=1e-12)


def test_of_signed_maps_the_positive_part_counts():
    # 1 of 2
    assert prototype_activation_change(one([[2.0, -5.0]]), one([[1.0, -1.0]])).item() == 0.5
