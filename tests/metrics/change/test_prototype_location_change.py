import math
from typing import ClassVar

import pytest
import torch

from protometry.metrics import PrototypeLocationChange
from protometry.metrics.functional import prototype_location_change
from tests.metrics.change.changes import MapChangeTests, at, case, change_record, image_first, one, slow_plc
from tests.metrics.tester import updated


class TestPrototypeLocationChange(MapChangeTests):
    cases: ClassVar = {"plc": case("maps", PrototypeLocationChange, slow_plc)}
    kernel = staticmethod(prototype_location_change)
    change = staticmethod(slow_plc)
    highest = math.inf


def test_non_square_grid():
    # (row 0, col 1) to (row 1, col 4): 3 columns and 1 row; the longest way on 2 x 5 cells is 4 + 1
    assert prototype_location_change(at(2, 5, (0, 1)), at(2, 5, (1, 4))).item() == 4
    assert prototype_location_change(at(2, 5, (0, 1)), at(2, 5, (1, 4)), relative=True).item() == 0.8
    assert prototype_location_change(at(2, 5, (0, 0)), at(2, 5, (1, 4)), relative=True).item() == 1
    assert prototype_location_change(at(5, 2, (0, 0)), at(5, 2, (4, 1))).item() == 5


def test_tie():
    # peak (0, 1) against (1, 2): 1 + 1
    assert prototype_location_change(one([[0.0, 2, 2], [2, 0, 0]]), at(2, 3, (1, 2))).item() == 2


def test_flat_map_has_its_peak_at_the_first_cell():
    flat = torch.full((1, 1, 2, 3), 4.0)
    assert prototype_location_change(flat, at(2, 3, (1, 2))).item() == 3
    assert prototype_location_change(flat, 2 * flat).item() == 0


def test_one_cell():
    assert prototype_location_change(at(1, 1, (0, 0)), at(1, 1, (0, 0))).item() == 0
    assert prototype_location_change(at(1, 1, (0, 0)), at(1, 1, (0, 0)), relative=True).isnan()


def test_relative():
    record, metric = change_record("maps"), PrototypeLocationChange(relative=True)
    assert [PrototypeLocationChange().unit, metric.unit] == ["cells", "fraction"]
    values = prototype_location_change(record["maps"], record["perturbed_maps"], relative=True)
    expected = image_first(values.tolist(), record["valid"].tolist())
    assert updated(metric, record).compute().item() == pytest.approx(expected, abs=1e-12)


def test_one_value_per_image_not_per_batch():
    # distances 0, 0, 0, 0, 0, 1, 1, 1, 1, 1
    maps = torch.zeros(10, 1, 2, 3)
    maps[:, :, 0, 1] = 1
    perturbed = maps.clone()
    perturbed[5:] = maps[5:].flip(-2)
    for batch in (1, 4, 5, 10):
        metric = updated(PrototypeLocationChange(), {"maps": maps, "perturbed_maps": perturbed}, batch)
        assert metric.compute() == 0.5
