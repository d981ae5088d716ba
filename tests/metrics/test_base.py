"""Base classes, each with the smallest subclass that uses it."""

import math
import warnings

import pytest
import torch

from protometry.metrics import ImageMean, ImageRatio, ItemMean, ModelValue
from tests.metrics.tester import (
    NAN,
    check_attributes,
    check_collection,
    check_forward,
    check_protocol,
    check_undefined,
    updated,
)

T = 12.706204736174694  # of one degree of freedom


class Values(ImageMean):
    unit, higher_is_better = "of no known range", True

    def update(self, values, valid=None):
        self._accumulate(values, valid)


class Ratio(ImageRatio):
    unit, higher_is_better = "ratio", True

    def update(self, numerator, denominator):
        self._accumulate(numerator, denominator)


class Columns(ItemMean):
    """Share of positive entries of each of three columns; a column without entries is undefined."""

    unit, higher_is_better, averaged_over = "of no known range", True, "unit"

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.add_state("hits", torch.zeros(3, dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("shown", torch.zeros(3, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, entries):
        finite = entries.isfinite()
        self.hits = self.hits + ((entries > 0) & finite).sum(0)
        self.shown = self.shown + finite.sum(0)
        self.dropped = self.dropped + (~finite).all(1).sum()

    def values(self):
        return self.hits.double() / self.shown


class Largest(ModelValue):
    unit, higher_is_better = "count", False

    def update(self, weight):
        self._store(weight.max())


class TestImageMean:
    def test_images_before_entries(self):
        # image means 1, (0 + 0.5)/2, none; two images: (1 + 0.25)/2; 3 + 1 undefined entries
        metric = Values()
        metric.update(torch.tensor([[1.0, NAN], [0.0, 0.5], [NAN, NAN]]))
        metric.update(torch.zeros(1, 2), torch.tensor([[False, False]]))
        assert metric.compute() == 0.625
        summary = metric.summary()
        # s² = 2 * 0.375² = 0.28125, half width t * sqrt(0.28125 / 2) = t * 0.375
        assert (summary["low"], summary["high"]) == (pytest.approx(0.625 - T * 0.375), pytest.approx(0.625 + T * 0.375))
        assert (summary["n"], summary["skipped"]) == (2, 5)
        assert type(summary["n"]) is type(summary["skipped"]) is int

    @pytest.mark.parametrize(
        ("values", "value", "n"), [([0.5] * 9 + [NAN], 0.5, 9), ([0.5], 0.5, 1), ([[]] * 4, NAN, 0)]
    )
    def test_few_values(self, values, value, n):
        summary = updated(Values(), {"values": torch.tensor(values)}).summary()
        assert (summary["value"], summary["n"]) == pytest.approx((value, n), nan_ok=True)
        assert math.isnan(summary["low"])  # equal values of no known range, or one, or none
        assert n == 0 or summary["skipped"] == len(values) - n

    def test_float64_sums(self):
        metric = Values()
        metric.update(torch.full((3,), 0.1, dtype=torch.bfloat16))
        metric.update(torch.tensor([1e8, 1.0]))
        assert metric.value_sum == 3 * 0.10009765625 + 1e8 + 1
        assert not metric.value_sum.requires_grad

    def test_no_gradient_is_kept(self):
        values = torch.tensor([0.5, 1.0], requires_grad=True)
        assert not Values()(values).requires_grad

    def test_undefined(self):
        record = {"values": torch.tensor([[NAN, 1.0]]), "valid": torch.tensor([[True, False]])}
        check_undefined(Values, record, skipped=2)


class TestImageRatio:
    def test_hand_case(self):
        metric = Ratio()
        metric.update(torch.tensor([1.0, 2, 0, 0, NAN]), torch.tensor([2.0, 2, 4, 0, 1]))
        summary = metric.summary()
        assert summary["value"] == 0.375
        assert (summary["high"] - summary["low"]) / 2 / 4.302653 == pytest.approx(0.30136, abs=1e-5)
        assert (summary["n"], summary["skipped"]) == (3, 2)


class TestItemMean:
    def test_hand_case(self):
        # columns: 1 of 2, 1 of 1, none shown; the last image is left out
        metric = Columns()
        metric.update(torch.tensor([[1.0, NAN, NAN], [-1.0, 2.0, NAN], [NAN, NAN, NAN]]))
        summary = metric.summary()
        assert summary["value"] == 0.75
        # s² = 2 * 0.25² = 0.125, half width t * sqrt(0.0625)
        assert [summary["low"], summary["high"]] == pytest.approx([0.75 - T * 0.25, 0.75 + T * 0.25])
        assert (summary["n"], summary["skipped"]) == (2, 2)

    def test_a_summary_computes_the_values_once(self):
        metric, asked = Columns(), []
        metric.values = lambda: asked.append(None) or torch.ones(3, dtype=torch.float64)
        assert (metric.summary()["value"], len(asked)) == (1, 1)


class SinglePrecision(Columns):
    def values(self):
        return self.hits / self.shown


def test_item_values_must_be_float64():
    metric = updated(SinglePrecision(), {"entries": torch.ones(2, 3)})
    with pytest.raises(TypeError, match=r"`values` to return float64, but got torch\.float32; cast before dividing"):
        metric.compute()


def model_facts(rank, world_size, metric, late):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        if not (late and rank == 0):
            metric.update(torch.tensor([3.0, 7.0]))
        return metric.compute(), metric.summary()


class TestModelValue:
    def test_update_overwrites(self):
        metric = Largest()
        metric.update(torch.tensor([5.0, 2.0]))
        metric.update(torch.tensor([3.0]))
        assert (metric.compute(), metric.compute().dtype) == (3, torch.float64)
        assert metric.summary() == pytest.approx(
            {"value": 3, "low": NAN, "high": NAN, "n": 1, "skipped": 0}, nan_ok=True
        )

    def test_forward_overwrites_too(self):
        metric = Largest()
        assert (metric(torch.tensor([5.0, 2.0])), metric(torch.tensor([3.0])), metric.compute()) == (5, 3, 3)

    def test_protocol(self):
        check_attributes(Largest())
        check_protocol(Largest, {"weight": torch.tensor([1.0, 4.0, 2.0])})
        check_forward(Largest, {"weight": torch.tensor([9.0, 4.0, 2.0, 1.0])})
        check_collection(Largest, {"weight": torch.tensor([1.0, 4.0])})

    def test_merging_keeps_the_one_that_was_updated(self):
        metric, other = Largest(), Largest()
        other.update(torch.tensor([3.0]))
        metric.merge_state(other)
        assert metric.value == 3

    @pytest.mark.parametrize("bad", [NAN, math.inf, -math.inf])
    def test_undefined(self, bad):
        check_undefined(Largest, {"weight": torch.tensor([bad])}, skipped=1)

    @pytest.mark.parametrize("late", [False, True])
    def test_two_processes(self, ddp_pool, late):
        for value, summary in ddp_pool.run(model_facts, Largest(), late):
            assert value == 7
            assert (summary["value"], summary["n"]) == (7, 1)


def test_a_metric_draws_its_value():
    """As torchmetrics does, with the range of a fraction."""

    class Share(Values):
        unit = "fraction"

    metric = Share()
    metric.update(torch.tensor([0.25, 0.75]))
    _, axes = metric.plot()
    assert axes.get_lines()[0].get_ydata() == [0.5]
    low, high = axes.get_ylim()
    assert low <= 0
    assert high >= 1
