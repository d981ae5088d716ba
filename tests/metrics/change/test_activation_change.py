import math
from functools import partial
from typing import ClassVar

import pytest
import torch

from metrics import ClassificationActivationChange, PrototypeActivationChange, VisualizationActivationChange
from metrics import functional as kernels
from tests.metrics.change.changes import change_record, finite, image_first, ratio, slow_change, slow_pac, slow_vac
from tests.metrics.tester import Case, ChangeTests, nowhere_finite, updated

NAN = math.nan
MAPS, SALIENCY, LOGITS = change_record("maps"), change_record("saliency"), change_record("logits")


def softmax(row):
    powers = [math.exp(logit) for logit in row]
    return [power / sum(powers) for power in powers]


def slow_cac(record):
    pairs = zip(record["logits"].tolist(), record["perturbed_logits"].tolist(), strict=True)
    return image_first([[ratio(softmax(one), softmax(other)) if finite(one, other) else NAN] for one, other in pairs])


class TestEveryClass(ChangeTests):
    cases: ClassVar = {
        "pac": Case(PrototypeActivationChange, MAPS, partial(slow_change, slow_pac), nowhere_finite(MAPS), 39),
        "vac": Case(
            partial(VisualizationActivationChange, quantile=0.7),
            SALIENCY,
            partial(slow_change, slow_vac, quantile=0.7),
            nowhere_finite(SALIENCY),
            39,
        ),
        "cac": Case(ClassificationActivationChange, LOGITS, slow_cac, nowhere_finite(LOGITS), 13),
    }


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
