import math
from functools import partial

import pytest
import torch

from metrics import ClassificationActivationChange, PrototypeActivationChange, VisualizationActivationChange
from metrics import functional as kernels
from tests.metrics.changes import change_record, finite, image_first, ratio, slow_change, slow_pac, slow_vac
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
MAPS, SALIENCY, LOGITS = change_record("maps"), change_record("saliency"), change_record("logits")


def softmax(row):
    powers = [math.exp(logit) for logit in row]
    return [power / sum(powers) for power in powers]


def slow_cac(record):
    pairs = zip(record["logits"].tolist(), record["perturbed_logits"].tolist(), strict=True)
    return image_first([[ratio(softmax(one), softmax(other)) if finite(one, other) else NAN] for one, other in pairs])


CASES = {
    "pac": (PrototypeActivationChange, MAPS, partial(slow_change, slow_pac)),
    "vac": (
        partial(VisualizationActivationChange, quantile=0.7),
        SALIENCY,
        partial(slow_change, slow_vac, quantile=0.7),
    ),
    "cac": (ClassificationActivationChange, LOGITS, slow_cac),
}


@pytest.mark.parametrize(("build", "record", "oracle"), CASES.values(), ids=CASES)
class TestEveryClass:
    def test_attributes(self, build, record, oracle):
        check_attributes(build())
        assert build().higher_is_better is False
        assert build().unit == "fraction"

    def test_splits(self, build, record, oracle):
        check_splits(build, record, oracle)

    def test_protocol(self, build, record, oracle):
        check_protocol(build, record)

    def test_collection(self, build, record, oracle):
        check_collection(build, record)

    def test_two_processes(self, build, record, oracle, ddp_pool):
        check_two_processes(ddp_pool, build, record)

    def test_zero_change(self, build, record, oracle):
        check_change(build, record)

    def test_undefined(self, build, record, oracle):
        broken = {name: value * NAN if value.is_floating_point() else value for name, value in record.items()}
        check_undefined(build, broken, skipped=13 if "logits" in record else 39)


def test_names():
    classes = [PrototypeActivationChange, VisualizationActivationChange, ClassificationActivationChange]
    assert [metric.name for metric in classes] == ["pac", "vac", "cac"]


def test_options_reach_the_kernels():
    maps, perturbed = MAPS["maps"], MAPS["perturbed_maps"]
    clean = kernels.clip_saliency(SALIENCY["saliency"], 0.6)
    moved = kernels.clip_saliency(SALIENCY["perturbed_saliency"], 0.6)
    logits, other = LOGITS["logits"], LOGITS["perturbed_logits"]
    raw = {"saliency": SALIENCY["saliency"], "perturbed_saliency": SALIENCY["perturbed_saliency"]}
    regions, both = {"saliency": clean, "perturbed_saliency": moved}, {"maps": maps, "perturbed_maps": perturbed}
    sorted_change = kernels.prototype_activation_change(maps, perturbed, "quanproto")
    cases = [
        (PrototypeActivationChange("quanproto"), both, sorted_change),
        (VisualizationActivationChange(None), regions, kernels.visualization_activation_change(clean, moved)),
        (VisualizationActivationChange(0.6), raw, kernels.visualization_activation_change(clean, moved)),
    ]
    for options in ({"link": "sigmoid"}, {"variant": "quanproto"}):
        values = kernels.classification_activation_change(logits, other, **options)[:, None]
        cases.append((ClassificationActivationChange(**options), LOGITS, values))
    for metric, record, values in cases:
        assert updated(metric, record).compute().item() == pytest.approx(image_first(values.tolist()), abs=1e-12)


def test_every_map_counts_in_the_default_percentile():
    # the values above 0.95 of 20 pixels: the largest; 20 against 10
    saliency = torch.arange(1.0, 21.0).view(1, 1, 4, 5)
    metric = updated(VisualizationActivationChange(), {"saliency": saliency, "perturbed_saliency": saliency / 2})
    assert metric.compute() == 0.5


def test_errors():
    with pytest.raises(ValueError, match="`quantile` to lie strictly between 0 and 1"):
        VisualizationActivationChange(1.0)
    with pytest.raises(ValueError, match="`link` to be one of"):
        ClassificationActivationChange("relu")
    for metric_class in (PrototypeActivationChange, ClassificationActivationChange):
        with pytest.raises(ValueError, match="`variant` to be one of"):
            metric_class(variant="published")
