"""How much of a model's accuracy its concepts account for."""

import math
from functools import partial

import pytest
import torch
from torch.nn import functional as F

from protometry.metrics import ConceptCompleteness
from protometry.metrics.suite import build
from tests.metrics.test_suite import facts
from tests.metrics.tester import Case, MetricTests, nowhere_finite

CLASSES = 4


def record(images=21):
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(CLASSES, (images,), generator=generator)
    noise = torch.randn(2, images, CLASSES, generator=generator).double()
    logits, head = noise + torch.tensor([3.0, 1.0])[:, None, None] * F.one_hot(labels, CLASSES)
    head[2, 1] = math.nan
    return {"logits": logits, "concept_head_logits": head, "labels": labels}


def slow(record):
    right = []
    for *rows, label in zip(*(value.tolist() for value in record.values()), strict=True):
        if all(math.isfinite(value) for row in rows for value in row):
            right.append([row.index(max(row)) == label for row in rows])
    model, head = (sum(column) / len(right) for column in zip(*right, strict=True)) if right else (0, 0)
    return (head - 1 / CLASSES) / (model - 1 / CLASSES) if model > 1 / CLASSES else math.nan


class TestConceptCompleteness(MetricTests):
    cases = {
        "heads": Case(partial(ConceptCompleteness, CLASSES), record(), slow, nowhere_finite(record()), 21),
    }


def entry(model, head):
    """Of images on which two classifiers are right, as booleans."""
    metric = ConceptCompleteness(CLASSES)
    metric.update(
        *(F.one_hot((~right).long(), CLASSES).float() for right in (model, head)), torch.zeros(len(model)).long()
    )
    return metric.summary()


def test_a_model_at_chance_has_none():
    right = torch.arange(8) < 2
    summary = entry(right, right)
    assert math.isnan(summary["value"])
    assert (summary["n"], summary["skipped"]) == (0, 8)
    assert (summary["concepts_alone"], summary["whole_model"]) == (0.25, 0.25)


def test_two_that_always_agree_may_still_differ_elsewhere():
    """With the two added images, Σb = 16 + 1/2 and residuals ±1: 1 ± t √(2 · 24 / 23) / 16.5, t with 23 degrees."""
    right = torch.arange(22) < 22
    summary = entry(right, right)
    assert (summary["value"], summary["high"]) == (1, pytest.approx(1 + 2.0687 * math.sqrt(2 * 24 / 23) / 17, abs=1e-4))
    assert summary["low"] == pytest.approx(2 - summary["high"])


def test_units_without_a_concept_have_none():
    key = "concepts/completeness"
    for concepts in (None, torch.full((6,), -1), torch.tensor([-1, -1, -1, -1, -1, 0])):  # the last is not active
        reason = build([key], facts(concepts=concepts))[1][key]
        assert reason == "concept_units: the units of the model stand for no concepts"
