import math

import numpy as np
import pytest
import torch
from scipy import stats

from protometry.metrics.functional import (
    lift_interval,
    mean_interval,
    pairs_interval,
    ratio_interval,
    stratified_wilson_interval,
    wilson_interval,
)

Z = 1.959963984540054


def tensors(*values):
    return [torch.tensor(value, dtype=torch.float64) for value in values]


def both(interval):
    return [bound.item() for bound in interval]


class TestMeanInterval:
    def test_hand_case(self):
        # 1..5: mean 3, s² = 2.5, half width 2.776445 * sqrt(0.5) = 1.963243
        assert both(mean_interval(*tensors(15.0, 55.0, 5))) == pytest.approx([1.036757, 4.963243], abs=1e-6)

    @pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
    def test_slow_oracle(self, confidence):
        for seed in range(3):
            n = (2, 7, 300)[seed]
            values = torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).tolist()
            expected = stats.ttest_1samp(values, 0).confidence_interval(confidence)
            sums = tensors(sum(values), sum(value**2 for value in values), n)
            assert both(mean_interval(*sums, confidence)) == pytest.approx(list(expected), rel=1e-6, abs=1e-6)

    @pytest.mark.parametrize("end", [0, 1, 5])
    def test_of_rare_events_it_is_the_one_of_wilson_with_t(self, end):
        # 3 of 40 deviate by 0.5 from an end of the range, of which half an event of size 1 is not seen: 2 / 3.5; with
        # no other end, 0.5. A bound p of the share 1.5 / 40 / size satisfies |share - p| = t sqrt(p (1 - p) / 40)
        total, squares = (1.5, 0.75) if end != 1 else (38.5, 37.75)
        sums = tensors(total + (end == 5) * 200, squares + (end == 5) * (15 + 1000), 40)
        size = 0.5 if end == 5 else 2 / 3.5
        for bound in both(mean_interval(*sums, value_range=(5.0, math.inf) if end == 5 else (0.0, 1.0))):
            p = abs(bound - end) / size
            error = stats.t.ppf(0.975, 39) * math.sqrt(p * (1 - p) / 40)
            assert abs(1.5 / 40 / size - p) == pytest.approx(error, abs=1e-7)

    @pytest.mark.parametrize("value_range", [(0.0, 1.0), (-1.0, 1.0)])
    @pytest.mark.parametrize("n", [10, 30, 112])
    def test_it_holds_means_of_skewed_values_near_an_end(self, n, value_range):
        values = 1 - torch.from_numpy(np.random.default_rng(0).beta(0.2, 19.8, (2000, n)))
        low, high = mean_interval(values.sum(1), values.square().sum(1), torch.tensor(n), value_range=value_range)
        assert ((low <= 0.99) & (high >= 0.99)).double().mean() > 0.93  # without the half event .76 to .92

    @pytest.mark.parametrize(
        ("value", "low", "high"),
        # a share 3.8415 / 13.8415 = 0.27753 of the ten may lie at either end
        [(0.0, 0, 0.27753), (1.0, 1 - 0.27753, 1), (0.1, 0.1 * 0.72247, 0.1 + 0.9 * 0.27753)],
    )
    def test_equal_values_may_hide_others_whatever_the_rounding(self, value, low, high):
        sums = tensors(value * 10, value**2 * 10 * (1 + 1e-15), 10)
        assert both(mean_interval(*sums, value_range=(0.0, 1.0))) == pytest.approx([low, high], abs=1e-5)
        assert all(math.isnan(bound) for bound in both(mean_interval(*sums, value_range=(0.0, math.inf))))

    def test_elementwise_float64_and_too_few(self):
        low, high = mean_interval(torch.tensor([15.0, 2.0, 0.0]), torch.tensor([55.0, 4, 0]), torch.tensor([5, 1, 0]))
        assert low.dtype == high.dtype == torch.float64
        assert low[0].item() == pytest.approx(1.036757, abs=1e-6)
        assert low[1:].isnan().all()
        assert high[1:].isnan().all()


def mean_of_rows(table):
    return np.nanmean(np.nanmean(table, axis=1))


class TestPairsInterval:
    @pytest.mark.parametrize("itself", [True, False])
    def test_slow_oracle(self, itself):
        pairs = torch.rand(2, 7, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        pairs[:, :, 2] = math.nan  # of an item that is the second of no pair
        if not itself:
            pairs.diagonal(dim1=1, dim2=2).fill_(math.nan)
        bounds = torch.stack(pairs_interval(pairs), dim=1)
        for table, expected in zip(pairs.numpy(), bounds.tolist(), strict=True):
            without = np.array([mean_of_rows(np.delete(np.delete(table, i, 0), i, 1)) for i in range(7)])
            pseudo = mean_of_rows(table) - 6 * (without - without.mean())
            assert expected == pytest.approx(list(stats.ttest_1samp(pseudo, 0).confidence_interval()))

    def test_an_item_without_pairs_is_none(self):
        pairs = torch.rand(5, 5, generator=torch.Generator().manual_seed(0))
        more = torch.nn.functional.pad(pairs, (0, 1, 0, 1), value=math.nan)
        assert both(pairs_interval(more)) == both(pairs_interval(pairs))

    def test_nothing_is_left_of_two_items_without_one(self):
        pairs = torch.ones(2, 2).fill_diagonal_(math.nan)
        assert all(map(math.isnan, both(pairs_interval(pairs, value_range=(0.0, 1.0)))))

    def test_equal_pairs_may_differ_elsewhere(self):
        pairs = torch.full((30, 30), 0.3)
        expected = both(mean_interval(*tensors(9.0, 2.7, 30), value_range=(0.0, 1.0)))
        assert both(pairs_interval(pairs, value_range=(0.0, 1.0))) == pytest.approx(expected)


class TestWilsonInterval:
    def test_hand_cases(self):
        assert both(wilson_interval(*tensors(8, 10))) == pytest.approx([0.4902, 0.9433], abs=5e-5)
        assert both(wilson_interval(*tensors(10, 10))) == pytest.approx([0.7225, 1], abs=5e-5)
        assert both(wilson_interval(*tensors(0, 10))) == pytest.approx([0, 0.2775], abs=5e-5)

    @pytest.mark.parametrize(("hits", "count"), [(0, 2), (1, 2), (3, 7), (99, 100), (5000, 5794)])
    def test_bounds_solve_the_score_equation(self, hits, count):
        # a bound p satisfies |hits/count - p| = z sqrt(p (1 - p) / count)
        for bound in both(wilson_interval(*tensors(hits, count))):
            assert abs(hits / count - bound) == pytest.approx(
                Z * math.sqrt(max(bound * (1 - bound), 0) / count), abs=1e-7
            )

    def test_holds_the_share_and_ends_with_it(self):
        count = torch.arange(2, 600)
        hits = torch.cat([torch.zeros_like(count), count // 3, count])
        share = hits.double() / count.repeat(3)
        low, high = wilson_interval(hits, count.repeat(3))
        assert ((low <= share) & (share <= high)).all()
        assert (low[hits == 0] == 0).all()
        assert (high[share == 1] == 1).all()

    def test_too_few(self):
        assert all(math.isnan(bound) for bound in both(wilson_interval(*tensors(1, 1))))
        assert all(math.isnan(bound) for bound in both(wilson_interval(*tensors(0, 0))))


class TestRatioInterval:
    def test_hand_case(self):
        # a = 1, 2, 0; b = 2, 2, 4: R = 3/8; residuals .25, 1.25, -1.5, squares sum to 3.875;
        # variance 3.875 / (2 * 3 * (8/3)²) = 0.0908203, standard error 0.30136, t 4.302653
        low, high = both(ratio_interval(torch.tensor([3.0, 8, 5, 24, 6]), torch.tensor(3)))
        assert (low + high) / 2 == pytest.approx(0.375)
        assert (high - low) / 2 / 4.302653 == pytest.approx(0.30136, abs=1e-5)
        # no event among 30 objects of ten images
        low, high = both(ratio_interval(torch.tensor([0.0, 30, 0, 90, 0]), torch.tensor(10), value_range=(0.0, 1.0)))
        assert [low, high] == pytest.approx([0, 0.27753], abs=1e-5)

    def test_slow_oracle(self):
        for seed in range(3):
            a, b = (torch.rand(2, 9, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.1).tolist()
            ratio = sum(a) / sum(b)
            residual = sum((x - ratio * y) ** 2 for x, y in zip(a, b, strict=True))
            error = math.sqrt(residual / (8 * 9 * (sum(b) / 9) ** 2))
            products = [sum(x * y for x, y in zip(*pair, strict=True)) for pair in ((a, a), (b, b), (a, b))]
            interval = ratio_interval(torch.tensor([sum(a), sum(b), *products], dtype=torch.float64), torch.tensor(9))
            t = stats.t.ppf(0.975, 8)
            assert both(interval) == pytest.approx([ratio - t * error, ratio + t * error], rel=1e-6)

    def test_of_a_share_it_is_the_one_of_wilson_with_the_effective_number(self):
        # both of 2 objects in one of ten images: R = .1, residuals 1.8 and nine times -.2, squares sum to 3.6;
        # variance 3.6 / (9 * 10 * 2²) = .01 as of .1 * .9 / .01 = 9 objects, each in an image of its own
        bounds = both(ratio_interval(torch.tensor([2.0, 20, 4, 40, 4]), torch.tensor(10), value_range=(0.0, 1.0)))
        for bound, sign in zip(bounds, (1, -1), strict=True):
            assert sign * (0.1 - bound) == pytest.approx(2.262157 * math.sqrt(bound * (1 - bound) / 9), abs=1e-6)

    def test_undefined(self):
        assert all(math.isnan(bound) for bound in both(ratio_interval(torch.ones(5), torch.tensor(1))))
        assert all(math.isnan(bound) for bound in both(ratio_interval(torch.zeros(5), torch.tensor(4))))


class TestLiftInterval:
    def test_hand_case(self):
        # right 1, 1, 0, 1 of 4 images, the baseline 1, 0, 0, 0: .75 and .25; residuals .25, .25, -.75, .25 and .75,
        # three times -.25: r = (.1875 - .0625 + .1875 - .0625) / .75 = 1/3
        rows = torch.tensor([[1.0, 1, 1], [1, 0, 1], [0, 0, 1], [1, 0, 1]], dtype=torch.float64)
        low, high = both(lift_interval(rows.sum(0), rows.T @ rows, torch.tensor(4)))
        a, b, aa, bb, ab = 3.0, 4.0, 3.0, 4.0, 3.0
        least, most = both(ratio_interval(torch.tensor([a, b, aa, bb, ab]), torch.tensor(4), value_range=(0.0, 1.0)))
        down, up = 0.75 - least, most - 0.75  # of the baseline, the other way round
        assert 0.5 - low == pytest.approx(math.sqrt(down**2 - 2 / 3 * down * down + down**2))
        assert high - 0.5 == pytest.approx(math.sqrt(up**2 - 2 / 3 * up * up + up**2))

    def test_rare_misses_that_were_not_seen(self):
        # all of 30 right, where the baseline varies a little around .2: Wilson's bound of 30 of 30 is .886
        chance = torch.linspace(0.15, 0.25, 30, dtype=torch.float64)
        rows = torch.stack([torch.ones_like(chance), chance, torch.ones_like(chance)], dim=1)
        low, high = both(lift_interval(rows.sum(0), rows.T @ rows, torch.tensor(30)))
        assert low == pytest.approx(0.8 - math.hypot(1 - 0.8865, 0.0114), abs=1e-3)
        assert high == pytest.approx(0.8114, abs=1e-3)

    def test_undefined(self):
        for rows in (torch.ones(1, 3), torch.zeros(4, 3)):
            bounds = lift_interval(rows.sum(0), rows.T @ rows, torch.tensor(len(rows)))
            assert all(math.isnan(bound) for bound in both(bounds))


class TestStratifiedWilsonInterval:
    @pytest.mark.parametrize("right", [[3, 3, 3], [3, 0, 0], [0, 0, 0]])
    def test_of_classes_alike_it_is_the_one_of_all_images(self, right):
        value = sum(right) / 9
        interval = stratified_wilson_interval(
            torch.tensor(value), torch.tensor([*right, 0]), torch.tensor([3, 3, 3, 0])
        )
        assert both(interval) == pytest.approx(both(wilson_interval(*tensors(sum(right), 9))))

    def test_a_small_class_weighs_more(self):
        # recalls 1/2 of 4 and 1 of 96: variance (1/12 + 0) / 4 = 1/48, 0.75 * 0.25 * 48 = 9 images
        interval = stratified_wilson_interval(torch.tensor(0.75), torch.tensor([2, 96]), torch.tensor([4, 96]))
        assert both(interval) == pytest.approx(both(wilson_interval(*tensors(6.75, 9))))
