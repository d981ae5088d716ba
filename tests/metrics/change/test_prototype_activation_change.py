from typing import ClassVar

import pytest

from protometry.metrics import PrototypeActivationChange
from protometry.metrics.functional import prototype_activation_change
from tests.metrics.change.changes import MapChangeTests, case, change_record, image_first, one, ratio
from tests.metrics.tester import updated


def slow_pac(one, other):
    return ratio([max(value, 0) for value in one], [max(value, 0) for value in other])


class TestPrototypeActivationChange(MapChangeTests):
    cases: ClassVar = {"pac": case("maps", PrototypeActivationChange, slow_pac)}


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
