from functools import partial

import pytest
import torch

from protometry.metrics import PrototypeActivationLocationContrast, PrototypeLocationContrast
from protometry.metrics.functional import prototype_activation_location_contrast, prototype_location_contrast
from tests.metrics.change.changes import at, change_record, finite, grid, image_first, slow_palc, slow_plc
from tests.metrics.tester import NAN, Case, MetricTests, nowhere_finite, updated

KERNELS = (prototype_location_contrast, prototype_activation_location_contrast)
RECORD = {"maps": change_record("maps")["maps"]}


def slow(change, record):
    values = []
    for maps in record["maps"]:
        units = grid(maps[None])
        pairs = [(one, other) for index, one in enumerate(units) for other in units[index + 1 :]]
        pairs = [change(one, other) for one, other in pairs if finite(one, other)]
        values.append([image_first([[value] for value in pairs])])
    return image_first(values)


class TestContrasts(MetricTests):
    cases = {
        "plc": Case(PrototypeLocationContrast, RECORD, partial(slow, slow_plc), nowhere_finite(RECORD), 13),
        "palc": Case(PrototypeActivationLocationContrast, RECORD, partial(slow, slow_palc), nowhere_finite(RECORD), 13),
    }


def test_hand_cases():
    # peaks (0, 0), (0, 2), (2, 2): distances 2, 4, 2
    maps = torch.cat([at(3, 3, (0, 0)), at(3, 3, (0, 2)), at(3, 3, (2, 2))], dim=1)
    assert prototype_location_contrast(maps).item() == pytest.approx(8 / 3)
    # {a, b}, {b}, {c}: 1/2, 1, 1
    maps = torch.cat([at(1, 3, (0, 0), (0, 1)), at(1, 3, (0, 1)), at(1, 3, (0, 2))], dim=1)
    assert prototype_activation_location_contrast(maps).item() == pytest.approx(2.5 / 3)


def test_undefined_pairs_do_not_spoil_the_mean():
    maps = torch.cat([at(1, 3, (0, 0)), at(1, 3), at(1, 3, (0, 0), (0, 2)), torch.full((1, 1, 1, 3), NAN)], dim=1)
    # the flat map peaks at the first cell, as the others do; its region is undefined
    assert (prototype_location_contrast(maps).item(), prototype_activation_location_contrast(maps).item()) == (0, 0.5)


def test_no_pair():
    for kernel in KERNELS:
        assert kernel(at(3, 4, (1, 1))).isnan().tolist() == [True]
        assert kernel(torch.full((2, 3, 2, 2), NAN)).isnan().all()
        assert kernel(torch.zeros(0, 3, 2, 2)).shape == (0,)
    assert prototype_activation_location_contrast(torch.zeros(1, 3, 2, 2)).isnan().all()


def test_the_threshold_reaches_the_kernel():
    metric = updated(PrototypeActivationLocationContrast(0.2), RECORD)
    values = prototype_activation_location_contrast(RECORD["maps"], 0.2)
    assert metric.compute().item() == pytest.approx(values.nanmean().item(), abs=1e-12)
