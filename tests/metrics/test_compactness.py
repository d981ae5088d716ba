import math
from functools import partial
from typing import ClassVar

import pytest
import torch

from metrics import FeaturesPerClass, GlobalSize, LocalSize, NegativePositiveRatio, NumberOfFeatures, Sparsity
from tests.metrics.tester import (
    Case,
    MetricTests,
    check_attributes,
    check_collection,
    check_protocol,
    check_undefined,
    same_summaries,
    updated,
)

NAN = math.nan
WEIGHT = torch.tensor([[1.0, 0.0, -0.5, 0.0005], [0.0, 2.0, 0.0, 0.0]])
ALL = torch.ones(4, dtype=torch.bool)
# the value of each metric, worked out in the tests of the kernels
MODEL = {GlobalSize: 3, Sparsity: 0.625, NegativePositiveRatio: 0.5, NumberOfFeatures: 4, FeaturesPerClass: 2}


def share_facts(rank, world_size, metric):
    metric.update(WEIGHT, ALL)
    return metric.summary()


@pytest.mark.parametrize("metric_class", MODEL)
class TestModelFacts:
    def test_value(self, metric_class):
        metric = metric_class()
        check_attributes(metric)
        metric.update(weight=WEIGHT, active=ALL)
        summary = {"value": MODEL[metric_class], "low": NAN, "high": NAN, "n": 1, "skipped": 0}
        assert metric.summary() == pytest.approx(summary, nan_ok=True)

    def test_inactive_units_are_left_out(self, metric_class):
        metric = metric_class()
        metric.update(WEIGHT, torch.tensor([False, True, False, False]))
        # one column, (0, 2)
        values = {GlobalSize: 1, Sparsity: 0.5, NegativePositiveRatio: 0, NumberOfFeatures: 1, FeaturesPerClass: 0.5}
        assert metric.compute() == values[metric_class]

    def test_protocol(self, metric_class):
        # rows of this record are classes, not images: one row is one model too
        record = {"weight": WEIGHT.repeat(2, 1)}
        if metric_class is not GlobalSize:
            check_protocol(metric_class, record)
            check_collection(metric_class, record)
        metric = metric_class()
        assert metric(WEIGHT, ALL) == MODEL[metric_class]
        assert same_summaries(metric.clone().summary(), metric.summary())

    def test_two_processes(self, metric_class, ddp_pool):
        expected = metric_class()
        expected.update(WEIGHT, ALL)
        for summary in ddp_pool.run(share_facts, metric_class()):
            assert same_summaries(summary, expected.summary())


def test_global_size_reads_what_there_is():
    metric = GlobalSize()
    metric.update(None, torch.tensor([True, False, True]))
    assert metric.compute() == 2
    metric.update(WEIGHT, ALL, presence=torch.tensor([[0, 1, 0, 0], [0, 1, 0, 0]]))
    assert metric.compute() == 1
    metric = GlobalSize(variant="quanproto")
    metric.update(WEIGHT, ALL)
    assert metric.compute() == 2
    with pytest.raises(ValueError, match="`variant` to be one of"):
        GlobalSize(variant="published")


def test_thresholds_reach_the_kernels():
    for metric, value in ((GlobalSize(1.5), 1), (Sparsity(1.5), 7 / 8), (NegativePositiveRatio(0.6), 0)):
        metric.update(WEIGHT, ALL)
        assert metric.compute() == value


def test_no_positive_weight_is_undefined():
    check_undefined(NegativePositiveRatio, {"weight": -WEIGHT.abs()}, skipped=1)
    check_undefined(Sparsity, {"weight": WEIGHT * NAN}, skipped=1)


ACTIVE = torch.tensor([True, True, False, True, True])


def local_record():
    scores = torch.randn(13, 5, generator=torch.Generator().manual_seed(2))
    scores[3], scores[7, 0], scores[8, 2] = -1, NAN, NAN
    return {"scores": scores}


def slow_local_size(record):
    sizes = []
    for row in record["scores"].tolist():
        chosen = [score for score, active in zip(row, ACTIVE.tolist(), strict=True) if active]
        if all(map(math.isfinite, chosen)) and max(chosen) > 0:
            sizes.append(sum(score / max(chosen) > 0.1 for score in chosen))
    return sum(sizes) / len(sizes) if sizes else NAN


RECORD = local_record()
NOT_POSITIVE = {"scores": -RECORD["scores"].nan_to_num().abs()}


class TestLocalSize(MetricTests):
    cases: ClassVar = {"local_size": Case(partial(LocalSize, ACTIVE), RECORD, slow_local_size, NOT_POSITIVE, 13)}

    def test_hand_case(self):
        # counts 3 and 1, and an image without a positive score
        metric = LocalSize()
        metric.update(torch.tensor([[2.0, 1.0, 0.3, 0.19], [1.0, 0.0, 0.0, 0.0], [-1.0, -1.0, -1.0, 0.0]]))
        summary = metric.summary()
        assert (summary["value"], summary["n"], summary["skipped"]) == (2, 2, 1)

    def test_threshold(self):
        assert updated(LocalSize(threshold=0.4), {"scores": torch.tensor([[2.0, 1.0, 0.3]])}).compute() == 2
