from typing import ClassVar

import pytest

from protometry.metrics import PrototypeLocationChange
from protometry.metrics.functional import prototype_location_change
from tests.metrics.change.changes import MapChangeTests, at, case, change_record, image_first, slow_plc
from tests.metrics.tester import updated


class TestPrototypeLocationChange(MapChangeTests):
    cases: ClassVar = {"plc": case("maps", PrototypeLocationChange, slow_plc)}


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
