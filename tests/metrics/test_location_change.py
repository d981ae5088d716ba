import math
from functools import partial

import pytest
import torch

from metrics import (
    PrototypeActivationLocationChange,
    PrototypeActivationLocationContrast,
    PrototypeLocationChange,
    PrototypeLocationContrast,
    VisualizationLocationChange,
)
from metrics import functional as kernels
from tests.metrics.changes import (
    change_record,
    finite,
    grid,
    image_first,
    slow_change,
    slow_palc,
    slow_plc,
    slow_vlc,
)
from tests.metrics.tester import (
    check_attributes,
    check_change,
    check_collection,
    check_protocol,
    check_splits,
    check_two_processes,
    check_undefined,
    updated,
)

NAN = math.nan
MAPS, SALIENCY = change_record("maps"), change_record("saliency")
CONTRAST = {"maps": MAPS["maps"]}
CHANGES = {
    "plc": (PrototypeLocationChange, MAPS, partial(slow_change, slow_plc)),
    "palc": (PrototypeActivationLocationChange, MAPS, partial(slow_change, slow_palc)),
    "vlc": (partial(VisualizationLocationChange, quantile=0.7), SALIENCY, partial(slow_change, slow_vlc, quantile=0.7)),
}


def slow_contrast(change, record):
    values = []
    for maps in record["maps"]:
        units = grid(maps[None])
        pairs = [(one, other) for index, one in enumerate(units) for other in units[index + 1 :]]
        pairs = [change(one, other) for one, other in pairs if finite(one, other)]
        values.append([image_first([[value] for value in pairs])])
    return image_first(values)


CONTRASTS = {
    "plc_contrast": (PrototypeLocationContrast, CONTRAST, partial(slow_contrast, slow_plc)),
    "palc_contrast": (PrototypeActivationLocationContrast, CONTRAST, partial(slow_contrast, slow_palc)),
}
CASES = CHANGES | CONTRASTS


@pytest.mark.parametrize(("build", "record", "oracle"), CASES.values(), ids=CASES)
class TestEveryClass:
    def test_attributes(self, build, record, oracle):
        check_attributes(build())

    def test_splits(self, build, record, oracle):
        check_splits(build, record, oracle)

    def test_protocol(self, build, record, oracle):
        check_protocol(build, record)

    def test_collection(self, build, record, oracle):
        check_collection(build, record)

    def test_two_processes(self, build, record, oracle, ddp_pool):
        check_two_processes(ddp_pool, build, record)

    def test_undefined(self, build, record, oracle):
        broken = {name: value * NAN if value.is_floating_point() else value for name, value in record.items()}
        check_undefined(build, broken, skipped=13 if build in (case[0] for case in CONTRASTS.values()) else 39)


@pytest.mark.parametrize(("build", "record", "oracle"), CHANGES.values(), ids=CHANGES)
def test_zero_change(build, record, oracle):
    check_change(build, record)


def test_names():
    changes = [PrototypeLocationChange, PrototypeActivationLocationChange, VisualizationLocationChange]
    contrasts = [PrototypeLocationContrast, PrototypeActivationLocationContrast]
    assert [metric.name for metric in changes + contrasts] == ["plc", "palc", "vlc", "plc", "palc"]
    assert not any(metric.higher_is_better for metric in changes)
    assert all(metric.higher_is_better for metric in contrasts)
    assert [PrototypeLocationChange().unit, PrototypeLocationChange(relative=True).unit] == ["cells", "fraction"]
    assert PrototypeLocationContrast.unit == "cells"


def test_options_reach_the_kernels():
    maps, perturbed = MAPS["maps"], MAPS["perturbed_maps"]
    clean = kernels.clip_saliency(SALIENCY["saliency"], 0.6)
    moved = kernels.clip_saliency(SALIENCY["perturbed_saliency"], 0.6)
    both = {"maps": maps, "perturbed_maps": perturbed}
    regions = {"saliency": clean, "perturbed_saliency": moved}
    cases = [
        (PrototypeLocationChange(True), both, kernels.prototype_location_change(maps, perturbed, True)),
        (
            PrototypeActivationLocationChange(0.2),
            both,
            kernels.prototype_activation_location_change(maps, perturbed, 0.2),
        ),
        (
            VisualizationLocationChange(None, "mask"),
            regions,
            kernels.visualization_location_change(clean, moved, "mask"),
        ),
        (VisualizationLocationChange(None), regions, kernels.visualization_location_change(clean, moved)),
        (
            VisualizationLocationChange(0.6),
            {"saliency": SALIENCY["saliency"], "perturbed_saliency": SALIENCY["perturbed_saliency"]},
            kernels.visualization_location_change(clean, moved),
        ),
    ]
    for metric, record, values in cases:
        assert updated(metric, record).compute().item() == pytest.approx(image_first(values.tolist()), abs=1e-12)
    metric = updated(PrototypeActivationLocationContrast(0.2), {"maps": maps})
    values = kernels.prototype_activation_location_contrast(maps, 0.2)
    assert metric.compute().item() == pytest.approx(values.nanmean().item(), abs=1e-12)


def test_one_flat_map_among_ten():
    # a constant map has no active region: mean of nine, n = 9
    maps = torch.eye(4).view(1, 1, 4, 4).repeat(10, 1, 1, 1)
    maps[3] = 0.5
    metric = updated(PrototypeActivationLocationChange(), {"maps": maps, "perturbed_maps": maps.clone()})
    assert metric.summary() == {"value": 0, "low": 0, "high": 0, "n": 9, "skipped": 1}
    record = {"saliency": maps, "perturbed_saliency": maps}
    assert updated(VisualizationLocationChange(0.5), record).summary() == metric.summary()


def test_a_plateau_at_the_percentile_is_undefined_and_counted():
    # a quarter of the pixels tie at the maximum: none is above the 0.95 quantile
    record = {name: torch.eye(4)[None, None] for name in ("saliency", "perturbed_saliency")}
    check_undefined(VisualizationLocationChange, record, skipped=1)


def test_one_value_per_image_not_per_batch():
    # distances 0, 0, 0, 0, 0, 1, 1, 1, 1, 1
    maps = torch.zeros(10, 1, 2, 3)
    maps[:, :, 0, 1] = 1
    perturbed = maps.clone()
    perturbed[5:] = maps[5:].flip(-2)
    for batch in (1, 4, 5, 10):
        metric = updated(PrototypeLocationChange(), {"maps": maps, "perturbed_maps": perturbed}, batch)
        assert metric.compute() == 0.5


def test_errors():
    for quantile in (0.0, 1.0, 95):
        with pytest.raises(ValueError, match="`quantile` to lie strictly between 0 and 1"):
            VisualizationLocationChange(quantile)
    with pytest.raises(ValueError, match="`region` to be one of"):
        VisualizationLocationChange(region="boxes")
    for metric_class in (PrototypeActivationLocationChange, PrototypeActivationLocationContrast):
        with pytest.raises(ValueError, match="`threshold` to lie in"):
            metric_class(1.5)
    with pytest.raises(ValueError, match="`valid` to be of shape"):
        PrototypeLocationChange().update(MAPS["maps"], MAPS["perturbed_maps"], torch.ones(13, dtype=torch.bool))
