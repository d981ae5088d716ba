"""Metrics of the head of a model: what they have in common, and what is their own."""

import math

import pytest
import torch

from protometry.metrics import FeaturesPerClass, GlobalSize, NegativePositiveRatio, NumberOfFeatures, Sparsity
from protometry.metrics.functional import (
    features_per_class,
    global_size,
    negative_positive_ratio,
    number_of_features,
    sparsity,
)
from tests.metrics.tester import (
    DTYPES,
    NAN,
    check_attributes,
    check_collection,
    check_protocol,
    check_undefined,
    same_summaries,
)

WEIGHT = torch.tensor([[1.0, 0.0, -0.5, 0.0005], [0.0, 2.0, 0.0, 0.0]])
ALL = torch.ones(4, dtype=torch.bool)
KERNELS = (global_size, sparsity, negative_positive_ratio, number_of_features, features_per_class)
# columns 0, 1, 2, as 0.0005 is below the threshold; 3 of 8 are not negligible; -0.5 against 1 and 2; 4 non-zeros and
# 2 classes; and of the columns (0, 2), (-.5, 0), (.0005, 0), and (0, 2) alone
MODEL = {
    GlobalSize: (3, 2, 1), Sparsity: (0.625, 1 - 2 / 6, 0.5), NegativePositiveRatio: (0.5, 1, 0),
    NumberOfFeatures: (4, 3, 1), FeaturesPerClass: (2, 1.5, 0.5),
}  # fmt: skip


def random_weight(seed, dtype, classes=4, units=6):
    generator = torch.Generator().manual_seed(seed)
    choices = torch.tensor([-1.0, -0.0005, 0.0, 0.0, 0.0005, 2.0])
    weight = choices[torch.randint(6, (classes, units), generator=generator)].to(dtype)
    return weight, torch.rand(units, generator=generator) < 0.7


def same(value, expected):
    return float(value) == pytest.approx(expected, abs=1e-12, nan_ok=True)


def share_facts(rank, world_size, metric):
    metric.update(WEIGHT, ALL)
    return metric.summary()


@pytest.mark.parametrize("metric_class", MODEL)
class TestModelFacts:
    def test_value(self, metric_class):
        metric = metric_class()
        check_attributes(metric)
        metric.update(weight=WEIGHT, active=ALL)
        summary = {"value": MODEL[metric_class][0], "low": NAN, "high": NAN, "n": 1, "skipped": 0}
        assert metric.summary() == pytest.approx(summary, nan_ok=True)
        active = [torch.tensor([False, True, True, True]), torch.tensor([False, True, False, False])]
        for pruned, value in zip(active, MODEL[metric_class][1:], strict=True):
            metric.update(WEIGHT, pruned)
            assert same(metric.compute(), value)

    def test_protocol(self, metric_class):
        # rows of this record are classes, not images: one row is one model too
        record = {"weight": WEIGHT.repeat(2, 1)}
        if metric_class is not GlobalSize:
            check_protocol(metric_class, record)
            check_collection(metric_class, record)
        metric = metric_class()
        assert metric(WEIGHT, ALL) == MODEL[metric_class][0]
        assert same_summaries(metric.clone().summary(), metric.summary())

    def test_two_processes(self, metric_class, ddp_pool):
        expected = metric_class()
        expected.update(WEIGHT, ALL)
        for summary in ddp_pool.run(share_facts, metric_class()):
            assert same_summaries(summary, expected.summary())


def test_no_positive_weight_is_undefined():
    check_undefined(NegativePositiveRatio, {"weight": -WEIGHT.abs()}, skipped=1)
    check_undefined(Sparsity, {"weight": WEIGHT * NAN}, skipped=1)


def test_thresholds_are_strict_and_reach_the_kernels():
    for metric, value in ((GlobalSize(1.5), 1), (Sparsity(1.5), 7 / 8), (NegativePositiveRatio(0.6), 0)):
        metric.update(WEIGHT, ALL)
        assert metric.compute() == value
    weight, active = torch.tensor([[0.5, -0.5]]), torch.ones(2, dtype=torch.bool)
    assert (global_size(weight, active, threshold=0.5), sparsity(weight, threshold=0.5)) == (0, 1)
    assert negative_positive_ratio(weight, threshold=0.5).isnan()
    assert negative_positive_ratio(weight, threshold=0.25) == 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_slow_oracle(dtype):
    for seed in range(5):
        weight, active = random_weight(seed, dtype)
        columns = [[row[u] for row in weight.tolist()] for u in range(6) if active[u]]
        entries = [entry for column in columns for entry in column]
        positive = sum(entry > 1e-3 for entry in entries)
        assert global_size(weight, active) == sum(max(map(abs, column)) > 1e-3 for column in columns)
        assert global_size(weight, active, variant="quanproto") == sum(max(column) > 1e-3 for column in columns)
        assert same(sparsity(weight, active), 1 - sum(abs(entry) > 1e-3 for entry in entries) / len(entries))
        expected = sum(entry < -1e-3 for entry in entries) / positive if positive else NAN
        assert same(negative_positive_ratio(weight, active), expected)
        assert number_of_features(weight, active) == sum(any(column) for column in columns)
        assert same(features_per_class(weight, active), sum(entry != 0 for entry in entries) / 4)
    assert global_size(weight, active).dtype == number_of_features(weight).dtype == torch.int64


def test_ends():
    full, none = torch.ones(2, 3), torch.zeros(4, dtype=torch.bool)
    assert (sparsity(full), sparsity(torch.zeros(2, 3)), negative_positive_ratio(full)) == (0, 1, 0)
    assert global_size(torch.zeros(2, 3), torch.ones(3, dtype=torch.bool)) == 0
    # no active unit
    assert global_size(WEIGHT, none) == number_of_features(WEIGHT, none) == features_per_class(WEIGHT, none) == 0
    assert sparsity(WEIGHT, none).isnan()
    assert negative_positive_ratio(WEIGHT, none).isnan()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_not_finite(bad):
    weight = WEIGHT.clone()
    weight[0, 0] = bad
    for kernel in (sparsity, negative_positive_ratio, features_per_class):
        assert kernel(weight).isnan()
        assert not kernel(weight, torch.tensor([False, True, True, True])).isnan()
    for kernel in (global_size, number_of_features):
        with pytest.raises(ValueError, match="`weight` to be finite in active columns"):
            kernel(weight, ALL)
