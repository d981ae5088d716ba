from typing import ClassVar

import pytest
import torch

from protometry.metrics import PrototypeActivationLocationChange
from protometry.metrics.functional import prototype_activation_location_change
from tests.metrics.change.changes import (
    MapChangeTests,
    case,
    noisy_maps,
    one,
    slow_palc,
)
from tests.metrics.tester import updated


class TestPrototypeActivationLocationChange(MapChangeTests):
    cases: ClassVar = {"palc": case("maps", PrototypeActivationLocationChange, slow_palc)}


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
