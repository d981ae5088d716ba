import math
from functools import partial
from typing import ClassVar

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
from tests.metrics.change.changes import (
    change_record,
    finite,
    grid,
    image_first,
    slow_change,
    slow_palc,
    slow_plc,
    slow_vlc,
)
from tests.metrics.tester import Case, ChangeTests, MetricTests, check_undefined, nowhere_finite, updated

NAN = math.nan
MAPS, SALIENCY = change_record("maps"), change_record("saliency")
CONTRAST = {"maps": MAPS["maps"]}


def slow_contrast(change, record):
    values = []
    for maps in record["maps"]:
        units = grid(maps[None])
        pairs = [(one, other) for index, one in enumerate(units) for other in units[index + 1 :]]
        pairs = [change(one, other) for one, other in pairs if finite(one, other)]
        values.append([image_first([[value] for value in pairs])])
    return image_first(values)


class TestChanges(ChangeTests):
    cases: ClassVar = {
        "plc": Case(PrototypeLocationChange, MAPS, partial(slow_change, slow_plc), nowhere_finite(MAPS), 39),
        "palc": Case(
            PrototypeActivationLocationChange, MAPS, partial(slow_change, slow_palc), nowhere_finite(MAPS), 39
        ),
        "vlc": Case(
            partial(VisualizationLocationChange, quantile=0.7),
            SALIENCY,
            partial(slow_change, slow_vlc, quantile=0.7),
            nowhere_finite(SALIENCY),
            39,
        ),
    }


class TestContrasts(MetricTests):
    cases: ClassVar = {
        "plc": Case(
            PrototypeLocationContrast, CONTRAST, partial(slow_contrast, slow_plc), nowhere_finite(CONTRAST), 13
        ),
        "palc": Case(
            PrototypeActivationLocationContrast,
            CONTRAST,
            partial(slow_contrast, slow_palc),
            nowhere_finite(CONTRAST),
            13,
        ),
    }


def test_the_unit_follows_the_scale():
    assert [PrototypeLocationChange().unit, PrototypeLocationChange(relative=True).unit] == ["cells", "fraction"]


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
    summary = metric.summary()
    assert (summary["value"], summary["low"], summary["n"], summary["skipped"]) == (0, 0, 9, 1)
    record = {"saliency": maps, "perturbed_saliency": maps}
    assert updated(VisualizationLocationChange(0.5), record).summary() == summary


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
