import math
import pickle
from functools import partial
from typing import ClassVar

import pytest
import torch

from metrics import ClassIndependence, Contrastiveness, ScaleInvariantDiversity, StructuralGrounding
from tests.metrics.functional.test_class_representation import (
    ATTRIBUTES,
    TWO_GROUPS,
    WEIGHT,
    drawn,
    slow_contrast,
    slow_diversity,
    slow_independence,
)
from tests.metrics.tester import Case, MetricTests, check_attributes, nowhere_finite, same_summaries, updated

NAN = math.nan
USED = torch.tensor([True, True, False, True, True])
HEAD = drawn(5, 3, 6).mul(1.5).round()


def mean(values):
    values = [value for value in values if not math.isnan(value)]
    return sum(values) / len(values) if values else NAN


def record():
    scores = drawn(6, 13, 5)
    scores[:6, 1] += 4
    scores[:, 3] = 0.7
    return {"scores": scores, "labels": torch.arange(13) % 3}


def diversity_record():
    maps = drawn(7, 13, 6, 2, 3)
    maps[1] = NAN
    return {"unit_maps": maps, "logits": drawn(8, 13, 3)}


def slow_contrastiveness(data):
    columns = data["scores"].double().T[USED].tolist()
    return mean([slow_contrast(column) if column else NAN for column in columns])


def slow_class_independence(data):
    columns = data["scores"].double().T[USED].tolist()
    return mean([slow_independence(column, data["labels"].tolist()) for column in columns])


def slow_sid(data):
    rows = zip(data["unit_maps"].double().flatten(2).tolist(), data["logits"].argmax(dim=1).tolist(), strict=True)
    return mean([slow_diversity(maps, HEAD.tolist(), prediction, 4) for maps, prediction in rows])


class TestContrastiveness(MetricTests):
    build = partial(Contrastiveness, 5, USED)
    data: ClassVar = {"scores": record()["scores"]}
    cases: ClassVar = {"contrastiveness": Case(build, data, slow_contrastiveness, nowhere_finite(data), 5)}

    def test_units_keep_their_places_and_only_those_used_are_stored(self):
        metric = updated(Contrastiveness(3, torch.tensor([False, False, True])), {"scores": TWO_GROUPS.expand(-1, 3)})
        assert metric.scores.shape == (6, 1)
        assert metric.values().isnan().tolist() == [True, True, False]


class TestClassIndependence(MetricTests):
    build = partial(ClassIndependence, 5, 3, USED)
    cases: ClassVar = {
        "class_independence": Case(build, record(), slow_class_independence, nowhere_finite(record()), 5)
    }


class TestScaleInvariantDiversity(MetricTests):
    build = partial(ScaleInvariantDiversity, HEAD, 4)
    data: ClassVar = diversity_record()
    cases: ClassVar = {"sid": Case(build, data, slow_sid, nowhere_finite(data), 13)}

    def test_the_record_has_classes_with_too_few_features(self):
        assert 4 in (HEAD != 0).sum(dim=1)
        assert min((HEAD != 0).sum(dim=1)) < 4


def share_grounding(rank, world_size, metric):
    if rank == 0:
        metric.update(WEIGHT)
    return metric.summary()


def test_structural_grounding(ddp_pool):
    metric = StructuralGrounding(ATTRIBUTES, 2)
    check_attributes(metric)
    summary = {"value": (0.5 + math.sqrt(0.5)) / 1.4, "low": NAN, "high": NAN, "n": 1, "skipped": 0}
    assert metric(WEIGHT).item() == pytest.approx(summary["value"])
    for copy in (metric, metric.clone(), pickle.loads(pickle.dumps(metric)), metric.half()):
        assert copy.summary() == pytest.approx(summary, nan_ok=True)
    for shared in ddp_pool.run(share_grounding, StructuralGrounding(ATTRIBUTES, 2)):
        assert same_summaries(shared, metric.summary())
    # without the third unit class 2 has no weights, and the pair (1, 2) is left out: cosine 1 / sqrt 2 of (0, 1)
    metric.update(WEIGHT, torch.tensor([True, True, False]))
    summary |= {"value": math.sqrt(0.5) / 0.8, "skipped": 1}
    assert metric.summary() == pytest.approx(summary, nan_ok=True)
    metric.update(0 * WEIGHT)
    with pytest.warns(UserWarning, match="among 2 entries"):
        assert metric.compute().isnan()
    assert (metric.summary()["n"], metric.summary()["skipped"]) == (0, 2)


def test_planted_truth():
    """Features that half of the classes share, noise, and class detectors."""
    labels = torch.arange(400) % 20
    shared = (torch.arange(20)[:, None] + torch.arange(10)) % 4 < 2
    present = shared[labels].float() + drawn(9, 400, 10) / 20
    noise, detectors = drawn(10, 400, 10), torch.eye(20)[labels] + drawn(11, 400, 20) / 1000
    contrasts = [updated(Contrastiveness(s.shape[1]), {"scores": s}).compute() for s in (present, noise)]
    assert contrasts[0] > 0.99
    assert contrasts[1] < 0.7
    general = [
        updated(ClassIndependence(s.shape[1], 20), {"scores": s, "labels": labels}).compute()
        for s in (noise, present, detectors)
    ]
    assert 0.95 >= general[0] > 0.93
    assert 0.92 > general[1] > 0.88  # 1 of the 10 classes that share it
    assert general[2] < 0.1


def test_errors():
    for build, text in (
        (lambda: StructuralGrounding(ATTRIBUTES, 0), "`pairs` to be at least 1"),
        (lambda: Contrastiveness(0), "`num_units` to be at least 1"),
        (lambda: Contrastiveness(4, USED), r"`active` to be of shape \(4,\)"),
        (lambda: ClassIndependence(5, 0), "`num_classes` to be at least 1"),
        (lambda: ScaleInvariantDiversity(HEAD, 0), "`k` to be at least 1"),
        (lambda: Contrastiveness(4).update(torch.ones(2, 3)), r"`scores` to be of shape \(B, 4\)"),
    ):
        with pytest.raises(ValueError, match=text):
            build()
