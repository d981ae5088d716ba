import warnings

import pytest
import torch
from torchmetrics import MetricCollection

import metrics
from metrics import ModelValue, SummaryMetric
from metrics import functional as kernels
from metrics.suite import FAMILIES, Facts, build, resolve

GENERAL = ("general/accuracy", "general/balanced_accuracy", "general/top3_accuracy", "general/f1")
COMPACTNESS = tuple(
    f"compactness/{name}"
    for name in ("global_size", "sparsity", "npr", "local_size", "number_of_features", "features_per_class")
)


def facts(num_classes=5, multi_label=False, has_weight=True, missing=lambda flag: None):
    return Facts(num_classes, multi_label, has_weight, torch.tensor([True, True, False]), missing)


def test_families():
    assert list(FAMILIES) == ["general", "compactness"]
    assert FAMILIES["general"] == GENERAL
    assert FAMILIES["compactness"] == COMPACTNESS


def test_resolve():
    assert resolve(["all"]) == [*GENERAL, *COMPACTNESS]
    assert resolve(["compactness", "general"]) == [*COMPACTNESS, *GENERAL]
    assert resolve(["compactness/npr", "general", "compactness"])[:2] == ["compactness/npr", "general/accuracy"]
    assert len(resolve(["compactness/npr", "compactness", "all"])) == 10
    assert resolve([]) == []


def test_resolve_names_every_mistake_once():
    with pytest.raises(
        ValueError, match=r"names among \['all', 'general', .*'general/f1'.*\], but got \['f1', 'x/y'\]"
    ):
        resolve(["general", "f1", "x/y"])
    with pytest.raises(TypeError, match=r"`suite` to be a list of names, but got 'all'; write \['all'\]"):
        resolve("all")
    with pytest.raises(ValueError, match=r"but got \['general/none'\]"):
        build(["general/none"], facts())


def test_every_key_ends_in_the_name_of_its_metric():
    for labels in (False, True):
        built, _ = build(["all"], facts(multi_label=labels))
        assert [key.split("/")[1] for key in built] == [metric.name for metric in built.values()]
        assert all(isinstance(metric, SummaryMetric) for metric in built.values())


def test_everything_applies():
    built, skipped = build(["all"], facts())
    assert (tuple(built), skipped) == (GENERAL + COMPACTNESS, {})
    assert built["general/f1"].num_classes == built["general/balanced_accuracy"].num_classes == 5
    assert built["compactness/local_size"].active.tolist() == [True, True, False]


def test_reasons():
    built, skipped = build(["all"], facts(num_classes=3, multi_label=True, has_weight=False))
    assert {key: type(metric).__name__ for key, metric in built.items()} == {
        "general/accuracy": "SubsetAccuracy",
        "general/f1": "LabelF1Score",
        "compactness/global_size": "GlobalSize",
        "compactness/local_size": "LocalSize",
    }
    labels, weight = "single_label: an image has several labels", "weight: the model has no weight matrix"
    assert skipped == {
        "general/balanced_accuracy": labels,
        "general/top3_accuracy": f"{labels}; num_classes: top-3 accuracy needs more than 3 classes",
        "compactness/sparsity": weight,
        "compactness/npr": weight,
        "compactness/number_of_features": weight,
        "compactness/features_per_class": weight,
    }
    assert build(["general/top3_accuracy"], facts(num_classes=4))[1] == {}


def test_a_new_metric_is_one_line_and_may_need_a_field_of_the_data(monkeypatch):
    entry = metrics.suite.MetricEntry(lambda facts: metrics.Accuracy(), ("object_mask",))
    monkeypatch.setitem(metrics.suite._ENTRIES, "general/new", entry)
    assert list(build(["general/new"], facts())[0]) == ["general/new"]
    absent = facts(missing={"object_mask": "no segmentations/ under root"}.get)
    assert build(["general/new"], absent) == ({}, {"general/new": "object_mask: no segmentations/ under root"})


def test_each_call_builds_new_metrics():
    first, second = build(["general"], facts())[0], build(["general"], facts())[0]
    assert all(first[key] is not second[key] for key in first)


@pytest.mark.parametrize("multi_label", [False, True])
def test_a_collection_is_fed_by_argument_name(multi_label):
    built, skipped = build(["all"], facts(multi_label=multi_label))
    model_values = {key: metric for key, metric in built.items() if isinstance(metric, ModelValue)}
    others = {key: metric for key, metric in built.items() if key not in model_values}
    weight = torch.tensor([[1.0, 0.0, 3.0], [0.0, -1.0, 0.0]])
    once = MetricCollection(model_values, compute_groups=False)
    once.update(weight=weight, active=facts().active, presence=None)
    each = MetricCollection(others, compute_groups=False)
    generator = torch.Generator().manual_seed(0)
    logits, scores = torch.randn(6, 5, generator=generator), torch.rand(6, 3, generator=generator)
    labels = torch.rand(6, 5, generator=generator) < 0.5 if multi_label else torch.randint(5, (6,), generator=generator)
    for part in (slice(0, 4), slice(4, 6)):
        each.update(logits=logits[part], labels=labels[part], scores=scores[part], maps=torch.zeros(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = once.compute() | each.compute()
    assert values.keys() == built.keys()
    assert values.keys().isdisjoint(skipped)
    accuracy = kernels.subset_accuracy if multi_label else kernels.accuracy
    assert values["general/accuracy"] == accuracy(logits, labels).mean()
    assert values["compactness/local_size"] == kernels.local_size(scores, facts().active).mean()
    assert values["compactness/npr"] == 1


def test_exports():
    assert set(metrics.__all__) <= set(dir(metrics))
    assert set(kernels.__all__) <= set(dir(kernels))
    assert metrics.__all__ == sorted(metrics.__all__)
